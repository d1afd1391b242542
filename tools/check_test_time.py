"""Fails when an assertion in tests/ bounds elapsed time: on a busy machine such a test fails although nothing is wrong.

Refused are:

- a difference or sum with the reading of a clock, compared by order (`time.monotonic() - began < 2`), also by way of a
  name or of a function of the file that returns it;
- a difference of two moments that a row notes, compared by order (`task.started_at - task.created_at < …`);
- a wait that gives up before `PATIENCE` seconds (`assert done.wait(5)`, `eventually(…, timeout=3)`,
  `future.result(10)`), unless what is expected is that the time runs out. Less than a second is a pause, not a limit.

Order is no bound: `before <= task.created_at <= after` passes. A test marked `chaos` is not looked at: it runs alone,
by `make chaos`. What is worth knowing in seconds is a figure of `bench/`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.problems import ROOT, Problem, report

PATIENCE = 60
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in {*CLOCKS, "time"}}
OWNERS = {"time", "datetime", "datetime.datetime", "loop", "asyncio.get_running_loop()"}
NOTED = {"created_at", "updated_at", "started_at", "completed_at", "scheduled_at", "heartbeat_at", "total_seconds"}
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
WAITS = {"eventually", "aeventually", "timeout", "run", "communicate", "wait", "await_", "result", "join", "acquire"}
LIMIT_IS_SECOND = {"eventually", "aeventually"}
LIMIT_IS_FIRST = {"timeout", "wait", "result", "join", "acquire"}
REQUESTS = {"get", "post", "put", "delete", "request", "stream", "Client", "AsyncClient"}
HTTPX_SECONDS = 5.0
"""After which httpx gives up by default."""
LIMIT_IS_EITHER = {"wait", "await_"}
VIRTUAL = "simulation"
"""The folder whose tests run on virtual time, where seconds are exact."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_problems(folder: Path) -> list[Problem]:
    """Every bound of elapsed time in the tests of the folder, where time is the machine's."""
    problems = []
    for path in sorted(each for each in folder.rglob("*.py") if each.parent != folder / VIRTUAL):
        tree = ast.parse(path.read_text(), str(path))
        constants, measures = numbers_of(tree), measures_of(tree)
        for scope in scopes_of(tree):
            problems += [Problem(path, line, text) for line, text in compared_times(scope, measures)]
            problems += [Problem(path, line, text) for line, text in impatient_waits(scope, constants)]
    return problems


def scopes_of(tree: ast.Module) -> Iterator[Function]:
    """Every function that is not within another, except those of the long form."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        for member in members:
            if isinstance(member, Function) and not any("mark.chaos" in ast.unparse(d) for d in member.decorator_list):
                yield member


def measures_of(tree: ast.Module) -> set[str]:
    """The names of the functions of the file that return a span of time."""
    found = set()
    for scope in scopes_of(tree):
        spans, readings = bound_names(scope, set())
        returned = [node.value for node in ast.walk(scope) if isinstance(node, ast.Return) and node.value is not None]
        if any(is_span(value, spans, readings) for value in returned):
            found.add(scope.name)
    return found


def compared_times(scope: Function, measures: set[str]) -> Iterator[tuple[int, str]]:
    spans, readings = bound_names(scope, measures)
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assert):
            continue
        for comparison in (each for each in ast.walk(node.test) if isinstance(each, ast.Compare)):
            sides = [comparison.left, *comparison.comparators]
            by_order = any(isinstance(operator, ORDER) for operator in comparison.ops)
            about = "approx(" in ast.unparse(comparison)
            if (by_order or about) and any(is_span(side, spans, readings) or is_noted_span(side) for side in sides):
                yield comparison.lineno, f"bounds elapsed time: {ast.unparse(comparison)[:80]}"


def bound_names(scope: Function, measures: set[str]) -> tuple[set[str], set[str]]:
    """The names that hold a span of time, or return one, and those that hold a moment read from a clock."""
    spans, readings = set(measures), set[str]()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {ast.unparse(target) for target in targets}
            if is_span(node.value, spans, readings):
                spans |= names
            elif is_reading(node.value, readings):
                readings |= names
    return spans, readings


def is_span(node: ast.expr, spans: set[str], readings: set[str]) -> bool:
    """True for a calculation with a moment of the clock, also within a call such as `round(…)`."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub | ast.Add):
            calculated = is_reading(part.left, readings) or is_reading(part.right, readings)
        else:
            calculated = isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) in spans
        if calculated:
            return True
    return False


def is_reading(node: ast.expr, readings: set[str]) -> bool:
    """True for `time.monotonic()`, `monotonic()`, `datetime.now(UTC)`, and a name bound to one."""
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node) in readings
    if not isinstance(node, ast.Call):
        return False
    owner, _, name = ast.unparse(node.func).rpartition(".")
    return (name in CLOCKS and owner in ("", "time")) or (name in ("now", "utcnow", "time") and owner in OWNERS)


def is_noted_span(node: ast.expr) -> bool:
    """True for a difference of what rows say, which passes while the machine works."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub):
            sides = [part.left, part.right]
            if all(isinstance(side, ast.Attribute) and side.attr in NOTED for side in sides):
                return True
    return False


def impatient_waits(scope: Function, constants: dict[str, float]) -> Iterator[tuple[int, str]]:
    expected = {id(call) for node in ast.walk(scope) for call in meant_to_end(node)}
    for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
        limit = limit_of(call, constants)
        if limit is not None and 1 <= limit < PATIENCE and id(call) not in expected:
            yield call.lineno, f"gives up after {limit:g} s: {ast.unparse(call)[:80]}"


def meant_to_end(node: ast.AST) -> Iterator[ast.AST]:
    """The calls of which it is expected that the time runs out: in `with pytest.raises(…)`, and `not ….wait(…)`."""
    if isinstance(node, ast.With | ast.AsyncWith) and any("raises" in ast.unparse(item) for item in node.items):
        yield from ast.walk(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def limit_of(call: ast.Call, constants: dict[str, float]) -> float | None:
    """The seconds after which the call gives up, if they are written here or are the library's own."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    given = {each.arg for each in call.keywords}
    if owner == "httpx" and name in REQUESTS and not given & {"timeout", "transport"}:
        return HTTPX_SECONDS
    if name not in WAITS or owner.endswith("timing"):  # whose seconds a test moves by hand
        return None
    named = next((each.value for each in call.keywords if each.arg == "timeout"), None)
    is_method = isinstance(call.func, ast.Attribute)
    # `event.wait(5)`, but `queue.wait(task_id, 5)`.
    second = name in LIMIT_IS_SECOND or (name in LIMIT_IS_EITHER and len(call.args) > 1)
    place = 1 if second else 0 if is_method and name in LIMIT_IS_FIRST else None
    limit = named or (call.args[place] if place is not None and len(call.args) > place else None)
    if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float):
        return float(limit.value)
    return constants.get(limit.id) if isinstance(limit, ast.Name) else None


def numbers_of(tree: ast.Module) -> dict[str, float]:
    """The constants of the file."""
    return {
        target.id: float(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, int | float)
    }


if __name__ == "__main__":
    report(
        find_problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests"),
        "wait for what happens, with the patience of tests/fixtures/waiting.py; compare order, or move time by hand.",
    )
