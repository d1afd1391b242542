"""One line of an error says what went wrong, however many lines the exception's own message has."""

from __future__ import annotations

import pytest

from tasklib.core.texts.error_text import SUMMARY_CHARACTERS, describe, summary


class TwoFaced(Exception):
    """Raised from another."""


def fail() -> None:
    raise ValueError("first line\n  second\nthird")


def fail_again() -> None:
    try:
        fail()
    except ValueError as error:
        raise TwoFaced("on top") from error


def test_the_source_lines_around_the_place_are_told() -> None:
    with pytest.raises(ValueError, match="first") as caught:
        fail()
    text = describe(caught.value)
    assert "| def fail() -> None:" in text
    assert '>     raise ValueError("first line' in text
    assert text.index("| def fail()") > text.index("in fail\n")
    assert text.endswith("third")


def fail_together() -> None:
    raise ExceptionGroup("two things", [ValueError("a"), KeyError("b")])


@pytest.mark.parametrize(
    "function,said",
    [
        (fail, "ValueError: first line"),
        (fail_again, f"{__name__}.TwoFaced: on top"),
        (fail_together, "ExceptionGroup: two things (2 sub-exceptions)"),
    ],
)
def test_the_exception_is_named(function: object, said: str) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        function()  # type: ignore[operator]
    assert summary(describe(caught.value)) == said


@pytest.mark.parametrize(
    "text,said",
    [
        ("", ""),
        ("WorkerLost: worker a is gone", "WorkerLost: worker a is gone"),
        ("ValueError: without a traceback\nand more", "ValueError: without a traceback"),
    ],
)
def test_an_error_without_frames_is_its_first_line(text: str, said: str) -> None:
    assert summary(text) == said


def test_a_long_line_is_cut() -> None:
    assert len(summary("x" * 10_000)) <= SUMMARY_CHARACTERS
