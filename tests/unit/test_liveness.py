"""Whom an observer may declare dead, stepped through by hand."""

from __future__ import annotations

import pytest

from tasklib.core.time.liveness import LONGEST_GAP, LOOKS, SHORTEST_GAP_SECONDS, Sighting, Watch

PATIENCE = 9.0


class Observer:
    """Looks at one worker, and now and then waits longer for the answer than usual."""

    def __init__(self) -> None:
        self.watch = Watch(PATIENCE)
        self.moment = 1000.0

    def look(
        self, value: str, *, after: float = 0.0, took: float = 0.0, overdue: bool = True, patience: float = PATIENCE
    ) -> bool:
        """Whether the worker is given up by this look."""
        asked = self.moment + after
        self.moment = asked + took
        seen = [Sighting("w", value, patience, overdue)]
        return self.watch.note(seen, asked=asked, answered=self.moment) == seen

    def looks(self, value: str, seconds: float, **more: bool) -> bool:
        """Whether it is given up by regular looks of so many seconds together."""
        every = 0.5
        answers = [self.look(value, after=every, **more) for _ in range(int(seconds / every))]
        return any(answers)


def test_silence_is_proven_after_the_whole_patience_and_not_before():
    observer = Observer()

    assert not observer.look("a")
    assert not observer.looks("a", PATIENCE - 0.5)
    assert observer.look("a", after=0.5)


def test_nobody_is_given_up_at_first_sight_however_late_the_database_calls_it():
    assert not Observer().look("a", overdue=True)


def test_a_sign_of_life_starts_the_silence_anew():
    observer = Observer()
    observer.look("a")
    assert not observer.looks("a", PATIENCE - 0.5)
    assert not observer.look("b", after=0.5)
    assert not observer.looks("b", PATIENCE - 0.5)
    assert observer.look("b", after=0.5)


def test_who_is_not_overdue_for_the_database_is_left_alone():
    observer = Observer()
    observer.look("a")
    assert not observer.looks("a", 2 * PATIENCE, overdue=False)
    assert observer.look("a", after=0.5)


def test_a_look_that_spans_an_outage_starts_everything_anew():
    observer = Observer()
    observer.look("a")
    assert not observer.looks("a", 6)
    assert not observer.look("a", after=0.5, took=9.5)
    assert not observer.looks("a", PATIENCE - 0.5)
    assert observer.look("a", after=0.5)


def test_an_observer_that_did_not_look_for_long_starts_anew():
    observer = Observer()
    observer.look("a")
    assert not observer.looks("a", 6)
    assert not observer.look("a", after=LONGEST_GAP * PATIENCE + 0.1)
    assert not observer.looks("a", PATIENCE - 0.5)
    assert observer.look("a", after=0.5)


def test_an_outage_is_one_also_for_a_lease_that_is_given_more_time_than_the_observer():
    observer, patience = Observer(), 3 * PATIENCE
    observer.look("a", patience=patience)
    assert not observer.look("a", after=LONGEST_GAP * PATIENCE + 0.5, patience=patience)
    gaps = int(patience / (LONGEST_GAP * PATIENCE))
    answers = [observer.look("a", after=LONGEST_GAP * PATIENCE, patience=patience) for _ in range(gaps)]
    assert answers == [False] * (gaps - 1) + [True]


def test_a_short_delay_is_no_outage():
    observer = Observer()
    observer.look("a")
    assert not observer.look("a", after=LONGEST_GAP * PATIENCE)
    assert observer.look("a", after=LONGEST_GAP * PATIENCE)


def test_very_short_patience_does_not_ask_for_more_than_a_busy_machine_can_give():
    observer = Observer()
    observer.look("a", patience=0.1)
    assert observer.look("a", after=SHORTEST_GAP_SECONDS, patience=0.1)


def test_who_was_not_seen_is_forgotten():
    observer = Observer()
    observer.look("a")
    assert not observer.looks("a", 8)
    observer.watch.note([], asked=observer.moment, answered=observer.moment)
    assert not observer.look("a", after=1)


def test_a_lease_of_another_attempt_is_another_subject():
    watch = Watch(PATIENCE)
    first, second = (Sighting("t", "lease", 0.5, is_overdue=True, version=version) for version in (1, 2))

    assert watch.note([first], asked=0, answered=0) == []
    assert watch.has_leases
    assert watch.note([first, second], asked=0.5, answered=0.5) == [first]
    assert watch.note([second], asked=1, answered=1) == [second]
    assert watch.note([], asked=1, answered=1) == []
    assert not watch.has_leases


@pytest.mark.parametrize(
    "silent_for, expected",
    [(0.0, PATIENCE / LOOKS), (PATIENCE - 0.5, 0.5), (PATIENCE + 1, PATIENCE / LOOKS)],
    ids=["as often as it takes to notice an outage", "when silence may be proven", "proven or not overdue"],
)
def test_when_to_look_next(silent_for: float, expected: float):
    watch = Watch(PATIENCE)
    assert watch.next_look_in(0, 60) == 0
    watch.note([Sighting("w", "a", PATIENCE, is_overdue=False)], asked=0, answered=0)

    assert watch.next_look_in(silent_for, 60) == pytest.approx(expected)
    assert watch.next_look_in(silent_for, 0.1) == 0.1
