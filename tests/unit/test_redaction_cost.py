"""Redaction, and every regular expression of ours, costs ten times as much for ten times the text: by counted steps."""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Callable, Iterator
from fnmatch import translate
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tasklib
from tasklib.core.redaction import DEFAULT_KEYS, Redactor, Texts
from tests.fixtures.counting_regex import CountingRegex, TooManySteps

SOURCES = Path(tasklib.__file__).parent
GROWTH = 11.5
"""Ten times the text; the rest is what happens once."""
METHODS = {"match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
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


def patterns() -> Iterator[tuple[str, str, int, str]]:
    """Every regular expression written in the source: where, what, its flags, and how it is used."""
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text())
        uses: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                uses.setdefault(ast.unparse(node.value).rpartition(".")[2], set()).add(node.attr)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")) or not node.args:
                continue
            called = ast.unparse(node.func).removeprefix("re.")
            for text in strings_in(node.args[0]):
                flags = (
                    re.DOTALL
                    if "DOTALL" in ast.unparse(node)
                    else re.MULTILINE
                    if "MULTILINE" in ast.unparse(node)
                    else 0
                )
                how = {called} if called in METHODS else uses.get(name_of(tree, node), {"search"})
                anchored = how <= {"match"}, how <= {"match", "fullmatch"}
                yield path.name, text, flags, "match" if anchored[0] else "fullmatch" if anchored[1] else "search"


def test_every_pattern_of_ours_is_linear() -> None:
    found = list(patterns())
    assert len(found) > 25
    for where, text, flags, how in found:
        try:
            assert_linear(re.compile(text, flags), _RUN[how])
        except TooManySteps:
            pytest.fail(f"{where}: {text!r} takes more than linear time to {how}")


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


def strings_in(node: ast.expr) -> list[str]:
    parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def name_of(tree: ast.Module, call: ast.Call) -> str:
    """What the compiled pattern is called."""
    for node in ast.walk(tree):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and value is call:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return ast.unparse(target).rpartition(".")[2]
    return ""


_RUN: dict[str, Callable[[CountingRegex, str], Any]] = {
    "match": lambda counting, text: counting.match(text),
    "fullmatch": lambda counting, text: counting.match_whole(text),
    "search": lambda counting, text: counting.replace_all(text),
}
