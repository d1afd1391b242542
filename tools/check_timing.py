"""Fails where a worker, its supervisor or the HTTP service asks for time otherwise than through their `Timing`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.problems import ROOT, Problem, report

FOLDERS = ("worker", "service", "http")
EXCEPTIONS = {
    "worker/execution/processes": "child processes and the system's waiting for them live in the machine's time",
    "worker/execution/child_processes.py": "waits for the same processes",
    "worker/workflows/step_threads.py": "a thread that runs a plain function lives in the machine's time",
    "worker/workflows/replay.py": "a person tries code against records at a terminal, in no worker",
    "worker/program_end.py": "the end of the program, where a thread blocks until a worker in another has drained",
    "service/creation.py": "dates the answer for a task that is gone already; nobody waits for that moment",
    "service/evidence.py": "compares the machine's clock with the database's",
}
"""Where the machine's own time is meant, and why."""
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "time", "time_ns"}
"""Of the module `time`."""
WAITS = {"sleep", "timeout", "timeout_at", "wait_for"}
"""Of the module `asyncio`; to give up one's turn, `asyncio.sleep(0)`, takes no time."""
TIMERS = {"call_at", "call_later", "Timer"}
"""Of an event loop, and of `threading`."""


def find_problems(package: Path) -> list[Problem]:
    """Every call in the package's folder that asks for time by itself."""
    return [
        Problem(path, line, f"{what} asks for time by itself")
        for folder in FOLDERS
        for path in sorted((package / folder).rglob("*.py"))
        if not any(path.is_relative_to(package / each) for each in EXCEPTIONS)
        for line, what in _calls_of(ast.parse(path.read_text(), str(path)))
    ]


def _calls_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield node.lineno, "from time import"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {f"time.{name}" for name in CLOCKS}:
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _asks_for_time(node, node.func):
            yield node.lineno, ast.unparse(node.func)


def _asks_for_time(call: ast.Call, method: ast.Attribute) -> bool:
    owner = ast.unparse(method.value)
    if owner.split(".")[-1].lstrip("_") == "timing":
        return False
    limited = any(keyword.arg == "timeout" for keyword in call.keywords)
    if owner == "asyncio":
        yields = method.attr == "sleep" and ast.unparse(call.args[0]) == "0"
        return (method.attr in WAITS and not yields) or (method.attr == "wait" and limited)
    # An event of threads, a thread or a process that is waited for, for a limited time.
    waits = (method.attr in ("wait", "join") and limited) or (method.attr == "wait" and len(call.args) == 1)
    return waits or method.attr in TIMERS or ast.unparse(method) == "datetime.now"


if __name__ == "__main__":
    report(
        find_problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src/tasklib"),
        "Ask the queue's `timing` (core/time/timing.py), so that tests can move it.",
    )
