"""The judge of histories finds what it is there to find."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.chaos.history import Change, Judge, Side
from tests.chaos.ledger import Entry, Ledger

TASK = uuid4()
NONE = Side(None, 0, 0, 0, 0, 0)
PENDING = Side("pending", 0, 0, 0, 0, 0)
RUNNING = Side("running", 1, 1, 0, 0, 0)
COMPLETED = Side("completed", 1, 1, 0, 0, 0)
LOST = Side("pending", 1, 1, 1, 1, 1)
AGAIN = Side("running", 2, 2, 1, 1, 1)


def changes(*sides: Side, name: str = "quick") -> list[Change]:
    """A task that was stored and then was in one phase after the other."""
    return [Change(number, TASK, name, *pair) for number, pair in enumerate(zip((NONE, *sides), sides, strict=False))]


def ran(version: int, *words: str) -> list[Entry]:
    """An execution under a claim, as its body saw it."""
    return [Entry(word, TASK, version, 1, 0.0) for word in words]


def judged(
    happened: list[Change],
    entries: list[Entry] | None,
    effects: list[UUID] | None = None,
    confirmed: tuple[UUID, ...] = (),
) -> list[str]:
    return Judge(happened, entries, effects or [], list(confirmed)).verdict().violations


def test_a_task_that_was_lost_once_and_completed_breaks_nothing():
    happened = changes(PENDING, RUNNING, LOST, AGAIN, AGAIN._replace(phase="completed"))
    assert judged(happened, ran(1, "start") + ran(2, "start", "end"), confirmed=(TASK,)) == []
    assert judged(happened, None) == [], "without a ledger, the rows alone are judged"


@pytest.mark.parametrize(
    "happened, entries, word",
    [
        (changes(PENDING, RUNNING, COMPLETED), ran(1, "start", "start", "end"), "2 times under one claim"),
        (changes(PENDING, RUNNING, COMPLETED), ran(1, "start"), "has not returned"),
        (changes(PENDING, RUNNING, COMPLETED), ran(1, "start", "end") + ran(2, "start"), "never gave"),
        (changes(PENDING, RUNNING, COMPLETED), ran(1, "start", "overlap", "end"), "earlier attempt was still running"),
        (changes(PENDING, RUNNING, RUNNING._replace(version=2)), ran(1, "start"), "without a claim"),
        (changes(PENDING, RUNNING, LOST, AGAIN._replace(version=1)), ran(1, "start"), "given before"),
        (changes(PENDING, RUNNING, LOST._replace(lost=0)), ran(1, "start"), "no end of an attempt"),
        (changes(PENDING, RUNNING, NONE), ran(1, "start"), "removed while it was running"),
        (changes(PENDING, RUNNING._replace(attempts=2)), ran(1, "start"), "1 attempts were spent"),
        (changes(PENDING, RUNNING, COMPLETED, name="effect"), ran(1, "start", "end"), "do not agree"),
    ],
)
def test_a_broken_promise_is_named(happened: list[Change], entries: list[Entry], word: str):
    assert word in "\n".join(judged(happened, entries))


def test_what_was_confirmed_must_be_there_once_and_nothing_else():
    other = uuid4()
    done = changes(PENDING, RUNNING, COMPLETED), ran(1, "start", "end")
    assert "never stored" in "\n".join(judged(*done, confirmed=(TASK, other)))
    assert "confirmed twice" in "\n".join(judged(*done, confirmed=(TASK, TASK)))
    beside = Change(9, other, "quick", NONE, PENDING)
    assert "nobody was told of" in "\n".join(judged([*done[0], beside], done[1], confirmed=(TASK,)))


def test_an_effect_without_its_completion_is_found():
    assert "do not agree" in "\n".join(judged(changes(PENDING, RUNNING), ran(1, "start", "end"), [TASK]))


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.entries() == []
    ledger.path.write_text(f"start {TASK} 1 7 2.5\nend {TASK}")
    assert ledger.entries() == [Entry("start", TASK, 1, 7, 2.5)]
    with ledger.path.open("a") as file:
        file.write(" 1 7 3.5\n")
    assert [entry.what for entry in ledger.entries()] == ["start", "end"]
