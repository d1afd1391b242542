"""The same failure has the same fingerprint, whatever its message says."""

from __future__ import annotations

import json
import traceback

import pytest

from tasklib.core.texts.fingerprint import MAX_CHARACTERS, fingerprint


def of(text: str) -> str:
    """The fingerprint of what reading the text raises, here."""
    try:
        json.loads(text)
    except ValueError:
        return fingerprint(traceback.format_exc())
    raise AssertionError("it was valid")


def test_message_and_line_do_not_matter_and_the_place_is_our_own() -> None:
    assert of("{") == of("[1,") == "JSONDecodeError in unit/test_fingerprint.py:of"


def test_an_error_that_replaces_another_counts_itself() -> None:
    try:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("two\nlines: here") from error
    except RuntimeError:
        found = fingerprint(traceback.format_exc())
    assert found.startswith("RuntimeError in unit/test_fingerprint.py:")


def test_a_group_of_exceptions() -> None:
    try:
        raise ExceptionGroup("all of them", [ValueError("a"), KeyError("b")])
    except ExceptionGroup:
        found = fingerprint(traceback.format_exc())
    assert found.startswith("ExceptionGroup in unit/test_fingerprint.py:")


@pytest.mark.parametrize(
    "text,expected",
    [
        ("WorkerLost: worker w1 is gone", "WorkerLost"),
        ("tasklib.errors.TaskTimeout: after 3 s", "TaskTimeout"),
        ("it did not work", "Error"),
        ("", "Error"),
    ],
)
def test_text_that_is_no_traceback(text: str, expected: str) -> None:
    assert fingerprint(text) == expected


def test_it_is_bounded() -> None:
    assert len(fingerprint("E" * 1000)) == MAX_CHARACTERS
