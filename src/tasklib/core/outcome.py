"""What becomes of a task when an attempt has ended: one decision for workers of every kind and for recovery.  Pure.

Used by the worker, its child processes, the routes for workers over HTTP, and the recovery of a lost worker's
tasks.  The answer is a Completion or an Ending, which `storage/operations/attempts.py` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, assert_never

from tasklib.core.calls.base_exceptions import is_interrupt
from tasklib.core.calls.signals import Restart
from tasklib.core.codec import dumps
from tasklib.core.lifecycle import Ending
from tasklib.core.retry import RetryPolicy
from tasklib.core.texts.error_text import describe, describe_shortly
from tasklib.errors import (
    Abort,
    InvalidArguments,
    ProcessDied,
    ProcessNotReady,
    ResultError,
    Retry,
    Snooze,
    TaskFailed,
    TaskTimeout,
    WaitTimeout,
    seconds_of,
)


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised, a signal too; or its result could not be stored, or its process died."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker over HTTP reported a failure: why, whether another attempt may follow, and after how many seconds."""

    error: str
    retry: bool = True
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """It was ended from outside at its timeout; a person may have asked to cancel it before."""

    seconds: float
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Its worker vanished."""

    error: str
    before: int = 0
    """How often the task had lost its worker before."""
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It was stopped because a person asked for it."""


@dataclass(frozen=True, slots=True)
class Released:
    """Its worker released it: not started, or stopped because the worker stops."""


Outcome = Raised | Reported | TimedOut | Lost | Cancelled | Released


class Completion(NamedTuple):
    """An attempt that returned, as it is recorded; a tuple, because one is made per task."""

    task_id: str
    version: int
    result: str
    started: float
    ended: float
    progress: tuple[float, str | None] | None = None


class Attempt(Protocol):
    """The attempt to decide about: which one it is, and how many may follow."""

    @property
    def id(self) -> object: ...
    @property
    def version(self) -> int: ...
    @property
    def retry_count(self) -> int: ...
    @property
    def max_retries(self) -> int: ...


class RetryOptions(Protocol):
    """What a task declares about its retries."""

    @property
    def retry_policy(self) -> RetryPolicy | None: ...
    def retries(self, error: BaseException) -> bool:
        """Whether an attempt that ended in this error may be repeated, as far as its kind decides."""
        ...


def completed(
    attempt: Attempt, result: str, started: float, ended: float, progress: tuple[float, str | None] | None = None
) -> Completion:
    """What is recorded of an attempt whose function returned; its result is JSON text `{"value": …}`.

    Nothing is left to decide here: a result that cannot be kept is a ResultError, and `decide` is asked about that.
    """
    return Completion(str(attempt.id), attempt.version, result, started, ended, progress)


def decide(attempt: Attempt, outcome: Outcome, policy: RetryPolicy, options: RetryOptions | None = None) -> Ending:
    """What is recorded of an attempt that ended in another way; `policy` gives the delay where `options` have none."""
    task_id, version = str(attempt.id), attempt.version
    match outcome:
        case Released():
            return Ending.release(task_id, version)
        case Cancelled():
            return Ending.cancel(task_id, version)
        case TimedOut(cancel_requested=True):
            return Ending.cancel(task_id, version, error=_timeout(outcome))
        case Lost(cancel_requested=True):
            return Ending.cancel(task_id, version, error=outcome.error, outcome="lost")
        case Raised(Snooze(delay=delay)):
            return Ending.snooze(task_id, version, delay=delay)
        case Raised(Restart(kwargs=kwargs)):
            return Ending.restart(task_id, version, arguments=dumps(kwargs))
        case Raised(error):
            failure = _raised(error, options)
        case TimedOut():
            failure = _Failure(_timeout(outcome), "timeout")
        case Reported(text, retry, delay):
            failure = _Failure(text, "failed", repeatable=retry, delay=delay)
        case Lost(text, before):
            failure = _Failure(text, "lost", again=Ending.lose, end=Ending.bury, waits=before > 0)
        case _:
            assert_never(outcome)
    if not failure.repeatable or attempt.retry_count >= attempt.max_retries:
        return failure.end(task_id, version, error=failure.error, outcome=failure.kind)
    delay, note = _delay(attempt, failure, options, policy)
    return failure.again(task_id, version, delay=delay, error=failure.error + note, outcome=failure.kind)


@dataclass(frozen=True, slots=True)
class _Failure:
    """An attempt that failed: another may follow."""

    error: str
    kind: str
    """Its outcome in the history."""
    cause: BaseException | None = None
    repeatable: bool = True
    delay: float | None = None
    """The seconds asked for instead of the policy's."""
    waits: bool = True
    """False: the next attempt is due at once."""
    again: Callable[..., Ending] = Ending.retry_later
    """Makes the ending if another attempt follows, and `end` if none does."""
    end: Callable[..., Ending] = Ending.give_up


def _raised(error: BaseException, options: RetryOptions | None) -> _Failure:
    text, wanted = describe(error), options is None or options.retries(error)
    match error:
        case Abort() | ResultError() | InvalidArguments() | ProcessNotReady(never=True):
            return _Failure(text, "failed", error, repeatable=False)
        case WaitTimeout(step=str()) | TaskFailed(step=str()):
            return _Failure(text, "failed", error, repeatable=False)
        # Whatever `retry_on` names: the function asked for a retry, or did not raise the error itself.
        case Retry(delay=delay):
            return _Failure(text, "failed", error, delay=delay)
        case ProcessDied():
            return _Failure(text, "crashed", error, end=Ending.bury)
        case ProcessNotReady():
            return _Failure(text, "failed", error)
        case TaskTimeout():
            return _Failure(text, "timeout", error, repeatable=wanted)
        case _:
            return _Failure(text, "failed", error, repeatable=wanted)


def _delay(
    attempt: Attempt, failure: _Failure, options: RetryOptions | None, default: RetryPolicy
) -> tuple[float | None, str]:
    """The delay before the next attempt; if the user's own policy fails, that is noted and the default is used."""
    if failure.delay is not None or not failure.waits:
        return failure.delay, ""
    own = None if options is None else options.retry_policy
    try:
        return seconds_of((own or default)(attempt.retry_count, failure.cause)), ""
    except BaseException as broken:
        if is_interrupt(broken):
            raise
        note = f"\n(its retry policy failed too: {describe_shortly(broken)})"
        return default(attempt.retry_count, failure.cause), note


def _timeout(outcome: TimedOut) -> str:
    return describe(TaskTimeout(outcome.seconds))
