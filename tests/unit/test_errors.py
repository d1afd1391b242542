"""The error tree: messages that help, data a program can use, and a safe way between processes."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from tasklib import Task, TaskState, errors
from tasklib.core.time.clock import require_aware, require_storable
from tasklib.errors import (
    Abort,
    ClaimLost,
    ConfigurationError,
    ContextError,
    InvalidArguments,
    InvalidPayload,
    InvalidTransition,
    NotInitialized,
    ProcessDied,
    ProcessNotReady,
    ResultError,
    Retry,
    Snooze,
    TaskFailed,
    TaskLibError,
    TaskNotFound,
    TaskNotRegistered,
    TaskTimeout,
    UniqueConflict,
    WaitTimeout,
    WorkerLost,
    seconds_of,
)

ID = UUID(int=7)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_SHAPE = [
    ConfigurationError("wrong"),
    NotInitialized(),
    TaskNotRegistered("letter", ["email"]),
    InvalidArguments("email", ["'to' is missing"]),
    InvalidArguments("email", ["'to' is missing"], stored=True),
    InvalidPayload("email", ["NaN"]),
    TaskNotFound(ID),
    InvalidTransition(ID, "running", "delete", "completed"),
    UniqueConflict("email", "key", ID, "it is running"),
    ClaimLost(ID, 3, "cancelled"),
    WaitTimeout(ID, 5.0, "running"),
    TaskFailed(Task(ID, "email", TaskState.BURIED, NOW, NOW, NOW, error="Traceback\nOSError: no")),
    ContextError("no such resource"),
    TaskTimeout(30.0),
    WorkerLost("worker w-1 stopped answering"),
    ProcessDied("was killed by SIGKILL", pid=7, code=-9),
    ProcessNotReady("could not load the task"),
    ResultError("too large"),
    Retry(5, "busy"),
    Snooze(timedelta(minutes=1)),
    Abort("no use"),
]


@pytest.mark.parametrize("error", EVERY_SHAPE, ids=lambda each: type(each).__name__)
def test_an_error_crosses_to_another_process_with_its_data(error: Exception):
    arrived = pickle.loads(pickle.dumps(error))

    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))


def test_every_error_is_drawn_in_the_tree():
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, TaskLibError)]

    assert [each.__name__ for each in kinds if each.__name__ not in (errors.__doc__ or "")] == []


@pytest.mark.parametrize(
    "kind, builtin",
    [
        (ConfigurationError, ValueError),
        (InvalidArguments, ValueError),
        (TaskNotFound, LookupError),
        (ContextError, AttributeError),
        (ContextError, LookupError),
        (WaitTimeout, TimeoutError),
        (TaskTimeout, TimeoutError),
        (errors.TaskDefinitionError, TypeError),
    ],
)
def test_an_error_is_also_the_built_in_one_that_people_catch(kind: type[Exception], builtin: type[Exception]):
    assert issubclass(kind, builtin)


def test_arguments_refused_at_submit_say_that_nothing_was_stored():
    assert str(InvalidArguments("email", ["a", "b"])).endswith("'email': a; b; nothing was stored")


def test_arguments_that_do_not_fit_any_more_do_not_say_so():
    assert "nothing was stored" not in str(InvalidArguments("email", ["a"], stored=True))


@pytest.mark.parametrize("signal", [Retry(1), Snooze(1), Abort()])
def test_a_signal_is_not_an_error_of_ours(signal: Exception):
    assert not isinstance(signal, TaskLibError)


def test_a_retry_without_a_delay_leaves_it_to_the_policy():
    assert Retry().delay is None


@pytest.mark.parametrize("delay, seconds", [(5, 5.0), (0, 0.0), (1.5, 1.5), (timedelta(minutes=1), 60.0)])
def test_a_delay_is_seconds_or_a_timedelta(delay: Any, seconds: float):
    assert seconds_of(delay) == seconds


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "5", None, timedelta(seconds=-1)])
def test_a_delay_that_cannot_be_is_refused_with_its_value(delay: Any):
    with pytest.raises(ConfigurationError, match="a delay is a number of seconds or a timedelta"):
        seconds_of(delay)


def test_a_moment_with_a_time_zone_is_taken():
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    assert require_aware(moment, "run_at") is moment


def test_a_moment_without_one_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="run_at needs a time zone, got the naive 2026-01-01"):
        require_aware(datetime(2026, 1, 1), "run_at")  # noqa: DTZ001  that is the point


@pytest.mark.parametrize("hours", [-5, 0, 5])
def test_a_moment_that_no_database_keeps_is_refused_by_name(hours: int):
    zone = timezone(timedelta(hours=hours))

    for moment in (datetime.max.replace(tzinfo=zone), datetime.min.replace(tzinfo=zone)):
        with pytest.raises(ConfigurationError, match="until must lie between 0001-01-02 and 9999-12-31, got "):
            require_storable(moment, "until")
