"""From how an attempt ended to what is recorded: every outcome, with and without attempts left."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tasklib.core.calls.signals import Restart
from tasklib.core.lifecycle import Event
from tasklib.core.outcome import (
    Cancelled,
    Completion,
    Lost,
    Outcome,
    Raised,
    Released,
    Reported,
    TimedOut,
    completed,
    decide,
)
from tasklib.definition import TaskOptions
from tasklib.errors import (
    Abort,
    InvalidArguments,
    ProcessDied,
    ProcessNotReady,
    ResultError,
    Retry,
    Snooze,
    TaskTimeout,
)


class Claim(NamedTuple):
    id: str = "id"
    version: int = 7
    retry_count: int = 0
    max_retries: int = 3


FRESH, SPENT = Claim(), Claim(retry_count=3)
OPTIONS = TaskOptions(retry_on=(OSError, TaskTimeout), abort_on=(FileNotFoundError,))


def policy(retry_count: int, error: BaseException | None) -> float:
    return 10.0 * (retry_count + 1)


Row = tuple[Event, float | None, str | None]
LATER: Row = (Event.RETRY_LATER, 10.0, "failed")
GIVEN_UP: Row = (Event.GIVE_UP, None, "failed")
STOPPED: Row = (Event.CANCEL, None, "cancelled")

OUTCOMES: dict[str, tuple[Outcome, Row, Row]] = {
    "raised": (Raised(OSError("no")), LATER, GIVEN_UP),
    "raised what is not retried": (Raised(ValueError("no")), GIVEN_UP, GIVEN_UP),
    "raised what aborts": (Raised(FileNotFoundError("no")), GIVEN_UP, GIVEN_UP),
    "no Exception": (Raised(SystemExit(1)), GIVEN_UP, GIVEN_UP),
    "aborted": (Raised(Abort("no")), GIVEN_UP, GIVEN_UP),
    "result too large": (Raised(ResultError("no")), GIVEN_UP, GIVEN_UP),
    "wrong arguments": (Raised(InvalidArguments("job", ["no"])), GIVEN_UP, GIVEN_UP),
    "asked for a retry": (Raised(Retry(delay=2)), (Event.RETRY_LATER, 2.0, "failed"), GIVEN_UP),
    "asked for a retry at any time": (Raised(Retry()), LATER, GIVEN_UP),
    "snoozed": (Raised(Snooze(delay=4)), (Event.SNOOZE, 4.0, None), (Event.SNOOZE, 4.0, None)),
    "restarted": (Raised(Restart("job", {"n": 1})), *[(Event.RESTART, None, "restarted")] * 2),
    "raised its timeout": (
        Raised(TaskTimeout(1)),
        (Event.RETRY_LATER, 10.0, "timeout"),
        (Event.GIVE_UP, None, "timeout"),
    ),
    "process died": (
        Raised(ProcessDied("died", pid=1, code=-9)),
        (Event.RETRY_LATER, 10.0, "crashed"),
        (Event.BURY, None, "crashed"),
    ),
    "process not ready": (Raised(ProcessNotReady("no")), LATER, GIVEN_UP),
    "process never ready": (Raised(ProcessNotReady("no", never=True)), GIVEN_UP, GIVEN_UP),
    "timed out": (TimedOut(1), (Event.RETRY_LATER, 10.0, "timeout"), (Event.GIVE_UP, None, "timeout")),
    "timed out after a request to cancel": (
        TimedOut(1, cancel_requested=True),
        *[STOPPED] * 2,
    ),
    "reported": (Reported("no"), LATER, GIVEN_UP),
    "reported with a delay": (Reported("no", delay=0), (Event.RETRY_LATER, 0, "failed"), GIVEN_UP),
    "reported as final": (Reported("no", retry=False, delay=1), GIVEN_UP, GIVEN_UP),
    "lost": (Lost("no"), (Event.LOSE, None, "lost"), (Event.BURY, None, "lost")),
    "lost again": (Lost("no", before=1), (Event.LOSE, 10.0, "lost"), (Event.BURY, None, "lost")),
    "lost after a request to cancel": (Lost("no", cancel_requested=True), *[(Event.CANCEL, None, "lost")] * 2),
    "cancelled": (Cancelled(), *[STOPPED] * 2),
    "released": (Released(), *[(Event.RELEASE, None, None)] * 2),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_each_outcome_has_its_ending(name: str) -> None:
    outcome, fresh, spent = OUTCOMES[name]
    for claim, expected in ((FRESH, fresh), (SPENT, spent)):
        ending = decide(claim, outcome, policy, OPTIONS)
        assert (ending.task_id, ending.version) == ("id", 7)
        assert (ending.event, ending.delay, ending.outcome) == expected


def test_what_was_returned_is_a_completion() -> None:
    done = completed(SPENT, '{"value": 1}', 1.0, 2.5, (0.5, "half"))

    assert done == Completion("id", 7, '{"value": 1}', 1.0, 2.5, (0.5, "half"))


def test_without_options_every_error_is_retried() -> None:
    assert decide(FRESH, Raised(ValueError("no")), policy).event is Event.RETRY_LATER


def test_the_delay_of_the_task_goes_before_that_of_the_settings() -> None:
    options = TaskOptions(retry_policy=lambda retry_count, error: 1.5)

    assert decide(FRESH, Raised(OSError()), policy, options).delay == 1.5


@pytest.mark.parametrize("broken", [lambda *_: 1 / 0, lambda *_: -1.0])
def test_a_policy_that_fails_is_said_and_replaced_for_once(broken: Callable[..., float]) -> None:
    ending = decide(Claim(retry_count=1), Raised(OSError("no")), policy, TaskOptions(retry_policy=broken))

    assert ending.delay == 20.0
    assert "OSError: no\n(its retry policy failed too: " in (ending.error or "")


def test_a_timeout_says_the_same_whoever_ended_the_attempt() -> None:
    texts = {decide(FRESH, outcome, policy).error for outcome in (TimedOut(2), Raised(TaskTimeout(2)))}

    assert texts == {"tasklib.errors.TaskTimeout: the task ran longer than its timeout of 2 s"}
