"""Redaction, and every regular expression of ours, costs ten times as much for ten times the text: by counted steps."""

from __future__ import annotations

import ast
import importlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from fnmatch import translate
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

import pytest

import tasklib
from tasklib.core.redaction import DEFAULT_KEYS, Redactor, Texts
from tests.fixtures.counting_regex import CountingRegex, TooManySteps

SOURCES = Path(tasklib.__file__).parent
GROWTH = 11.5
"""Ten times the text; the rest is what happens once."""
METHODS = {"compile": 1, "match": 2, "fullmatch": 2, "search": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4}
"""What makes or uses a pattern, and where its flags are."""
GIVEN: dict[str, dict[str, Any]] = {
    "keys.py": {"spelled": [translate(each) for each in f"{DEFAULT_KEYS},a*b*c,*a*a*a*b".split(",")]},
    "migrate.py": {"kind": "TABLE"},
}
"""Names of a function's own that a pattern is made with, for each file."""
FRAGMENTS = (
    *(
        "token",
        "token=",
        "'token':",
        '"token": "',
        "token=(",
        'token="\\',
        '\\"token\\": \\"',
        "a.",
        "=",
        ":",
        '"',
        "'",
    ),
    *("://", "a:b@", "[", "}", "\\", " ", "hunter2", "hunter", "hhh", "4711471", "%68", "\n", "é"),
)
SECRETS = ["hunter2", "h" * 50, "h" * 50 + "u", "4711471", "é?&= x"]


@pytest.mark.parametrize("first", FRAGMENTS)
def test_texts_are_redacted_in_a_time_that_grows_with_them(first: str) -> None:
    for second in FRAGMENTS:
        small, large = (steps_of((first + second) * n + "@'\"") for n in (40, 400))
        assert large < GROWTH * small, (first, second)


def test_what_once_froze_a_service_costs_some_steps_for_each_character() -> None:
    for hostile in ("a." * 15_000, 'token="' * 5_000, "a=" * 15_000, "(token='" * 5_000, "h" * 30_000):
        assert steps_of(hostile) < 40 * len(hostile)


def test_many_secrets_cost_no_more_than_their_length() -> None:
    def steps(n: int) -> int:
        hide = Texts(f"{'h' * 20}{number}" for number in range(n))
        hide.text("h" * 100 * n)
        return hide.steps

    assert steps(400) < GROWTH * steps(40)


def test_the_steps_that_are_counted_are_those_that_are_done() -> None:
    """Python's own count of executed lines grows with it, so that nothing large is done and not counted."""
    for text in ('token="x', "a=b:", "'token':\\\"", "://a:b@ ", "hhh", "token=(", "token = "):
        ratios = []
        for n in (50, 500):
            hide = Redactor().texts({"password": SECRETS}, {})
            lines = lines_of(partial(hide.text, text * n))
            ratios.append(lines / hide.steps)
        assert ratios[1] < 1.15 * ratios[0], text


def test_what_is_too_much_is_hidden_whole_or_cut_without_half_a_secret() -> None:
    assert Texts(["x" * 100_000]).text("anything") == "**********"
    shown = Texts(["hunter2"]).text("." * ((1 << 21) - 3) + "hunter2") or ""
    assert "hun" not in shown
    assert shown.endswith("… cut …")


@pytest.mark.parametrize("glob", [*DEFAULT_KEYS.split(","), "*a*a*a*b", "*_pin", "?a*[ab]*"])
def test_a_key_is_compared_in_a_time_that_grows_with_it(glob: str) -> None:
    pattern = re.compile(translate(glob))
    assert_linear(pattern, lambda counting, text: counting.match(text))


class Use(NamedTuple):
    """A regular expression of ours and what is asked of it."""

    where: str
    pattern: re.Pattern[str]
    how: str


def uses() -> Iterator[Use]:
    """Every call of `re` in the source, worked out where its module has been imported; none is left out."""
    for path, tree in sources().items():
        called = [node for node in ast.walk(tree) if is_of_re(node)]
        if not called:
            continue
        names = vars(importlib.import_module(module_at(path)))
        for node in called:
            where = f"{path.relative_to(SOURCES)}: {ast.unparse(node)}"
            how = how_used(tree, node)
            for pattern in made_by(node, names, path):
                yield Use(where, pattern, how)


@cache
def sources() -> dict[Path, ast.Module]:
    """Each file of ours that could name `re`."""
    texts = {path: path.read_text() for path in sorted(SOURCES.rglob("*.py"))}
    return {path: ast.parse(text) for path, text in texts.items() if re.search(r"import re\b|from re\b|, re\b", text)}


def is_of_re(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr != "escape"
    )


def module_at(path: Path) -> str:
    return ".".join(("tasklib", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")


def made_by(node: ast.Call, names: dict[str, Any], path: Path) -> list[re.Pattern[str]]:
    """What the call compiles: one pattern, or one for each branch of a condition."""
    assert isinstance(node.func, ast.Attribute)
    takes = METHODS.get(node.func.attr)
    assert takes is not None, f"{path}: what does re.{node.func.attr} take?"
    flags = [*node.args[takes:], *(each.value for each in node.keywords if each.arg == "flags")]
    text = node.args[0]
    branches = [text.body, text.orelse] if isinstance(text, ast.IfExp) else [text]
    known = names | GIVEN.get(path.name, {})
    try:
        return [re.compile(worked_out(each, known), *(worked_out(flag, known) for flag in flags)) for each in branches]
    except NameError as error:
        pytest.fail(f"{path}: {ast.unparse(node)}: {error}; say in GIVEN what it may be")


def worked_out(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "a pattern", "eval"), names)


def how_used(tree: ast.Module, call: ast.Call) -> str:
    """`match` if it is only ever tried at the beginning of a text, `fullmatch` at the whole, `search` otherwise."""
    assert isinstance(call.func, ast.Attribute)
    how = {call.func.attr} - {"compile"}
    name = name_of(tree, call) if not how else ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS and ast.unparse(node.value).endswith(name or "-"):
            how |= {node.attr}
    return "search" if not how or how - {"match", "fullmatch"} else "match" if how == {"match"} else "fullmatch"


def test_every_pattern_of_ours_is_linear() -> None:
    found = list(uses())
    written = {use.where.partition(":")[0] for use in found}
    assert {"core/texts/search_text.py", "core/redaction/keys.py", "storage/shared_migrate.py"} <= written
    for use in found:
        try:
            assert_linear(use.pattern, _RUN[use.how])
        except TooManySteps:
            pytest.fail(f"{use.where}: {use.pattern.pattern!r} takes more than linear time to {use.how}")


def test_no_pattern_is_made_where_the_test_above_does_not_look() -> None:
    for path, tree in sources().items():
        nodes = list(ast.walk(tree))
        called = {id(node.func) for node in nodes if is_of_re(node)}
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = [each.name for each in node.names if each.asname]
                assert "re" not in [*imported, getattr(node, "module", None)], path
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "re":
                assert id(node) in called or node.attr not in METHODS, f"{path}: {ast.unparse(node)}"


@pytest.mark.parametrize("known", [r"(a+)+b", r"\w[\w.-]*=", r"-?\d+e"])
def test_the_measure_notices_a_pattern_that_is_not(known: str) -> None:
    with pytest.raises(TooManySteps):
        assert_linear(re.compile(known), _RUN["search"])


def assert_linear(pattern: re.Pattern[str], run: Callable[[CountingRegex, str], Any]) -> None:
    """However a fuzzer repeats what the pattern is made of, ten times the text costs about ten times the steps."""
    for begin, pump, end in pumped(pattern):
        small = CountingRegex(pattern, 1e5)
        run(small, begin + pump * 12 + end)
        run(CountingRegex(pattern, GROWTH * small.steps + 100), begin + pump * 120 + end)


def pumped(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    letters = sorted({*re.sub(r"\\[a-zA-Z]|[\\^$*+?(){}|\[\]<>]", "", pattern.pattern)} | {"a", "1", " "})[-14:]
    rng = random.Random(ascii(pattern.pattern))
    words = [*letters, *(rng.choice(letters) + rng.choice(letters) for _ in range(8))]
    for word in words:
        yield "", word, ""
        yield rng.choice(letters), word, rng.choice(letters) + "!"


def steps_of(text: str) -> int:
    hide = Redactor().texts({"password": SECRETS}, {})
    hide.text(text)
    return hide.steps


def lines_of(call: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "redaction" not in frame.f_code.co_filename:
            return None
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def name_of(tree: ast.Module, call: ast.Call) -> str:
    """What the compiled pattern is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and call in ast.walk(node):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return ast.unparse(target).rpartition(".")[2]
    return ""


_RUN: dict[str, Callable[[CountingRegex, str], Any]] = {
    "match": lambda counting, text: counting.match(text),
    "fullmatch": lambda counting, text: counting.match_whole(text),
    "search": lambda counting, text: counting.replace_all(text),
}
