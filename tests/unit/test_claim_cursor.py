"""How long claims go on from where the last one left off."""

from __future__ import annotations

import pytest

from tasklib.storage.operations.claims import Position
from tasklib.worker.intake.claim_cursor import MAX_RESUME_SECONDS, RESUME_SECONDS, ClaimCursor

HERE = [Position("mail", 0, "2026-01-01T00:00:00Z", 7)]
FURTHER = [Position("mail", 0, "2026-01-01T00:00:00Z", 9)]


def looked(seconds: float, *, ended: float = 100.0) -> ClaimCursor:
    cursor = ClaimCursor()
    cursor.scanned(HERE, began=ended - seconds, ended=ended)
    return cursor


def test_the_first_claim_looks_at_everything():
    assert ClaimCursor().after(["mail"], 0.0) == ()


def test_claims_go_on_for_a_moment_and_then_look_again():
    cursor = looked(0.001)

    assert cursor.after(["mail"], 100.0 + RESUME_SECONDS * 0.9) == HERE
    assert cursor.after(["mail"], 100.0 + RESUME_SECONDS * 1.1) == ()


def test_going_on_does_not_put_off_the_next_look():
    cursor = looked(0.001)
    cursor.continued(FURTHER)

    assert cursor.after(["mail"], 100.0 + RESUME_SECONDS * 0.9) == FURTHER
    assert cursor.after(["mail"], 100.0 + RESUME_SECONDS * 1.1) == ()


@pytest.mark.parametrize("seconds", [0.05, 0.5])
def test_looks_that_take_long_come_less_often_and_take_a_tenth_of_the_time(seconds: float):
    cursor = looked(seconds)

    assert cursor.after(["mail"], 100.0 + seconds * 8.9) == HERE
    assert cursor.after(["mail"], 100.0 + seconds * 9.1) == ()


def test_however_long_a_look_takes_the_next_comes():
    assert looked(60.0).after(["mail"], 100.0 + MAX_RESUME_SECONDS) == ()


def test_a_claim_that_left_off_nowhere_is_followed_by_a_look():
    cursor = looked(0.001)
    cursor.continued(())

    assert cursor.after(["mail"], 100.0) == ()


def test_a_name_that_is_known_no_longer_is_not_gone_on_with():
    assert looked(0.001).after(["other"], 100.0) == ()
