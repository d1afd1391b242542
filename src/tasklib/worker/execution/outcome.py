"""How an attempt ended: an exception and the task's options decide what happens next.  Pure."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from types import TracebackType

from tasklib.core.base_exceptions import is_interrupt
from tasklib.core.lifecycle import Ending
from tasklib.core.retry import RetryPolicy
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
    seconds_of,
)
from tasklib.storage.rows import ClaimedTask

_OURS = (
    str(Path(__file__).parents[1]),
    str(Path(__file__).parents[2] / "core/middleware.py"),
    str(Path(asyncio.__file__).parent),
)
"""Where the code lies that calls a function."""
_FINAL = (Abort, ResultError, InvalidArguments)
_NOT_ITS_OWN = (Retry, ProcessDied, ProcessNotReady)
"""Retried whatever `retry_on` names, because the function did not raise it, or asked for it."""


def ending_for(task: ClaimedTask, options: TaskOptions, error: BaseException, policy: RetryPolicy) -> Ending:
    """The ending of an attempt that raised."""
    if isinstance(error, Snooze):
        return Ending.snooze(task.id, task.version, delay=error.delay)
    text = describe(error)
    crashed = isinstance(error, ProcessDied)
    outcome = "timeout" if isinstance(error, TaskTimeout) else "crashed" if crashed else "failed"
    never = isinstance(error, _FINAL) or (isinstance(error, ProcessNotReady) and error.never)
    wanted = not never and (isinstance(error, _NOT_ITS_OWN) or options.retries(error))
    if not wanted or task.retry_count >= task.max_retries:
        if crashed:
            return Ending.bury(task.id, task.version, error=text)
        return Ending.give_up(task.id, task.version, error=text, outcome=outcome)
    delay, note = _delay(task, error, options.retry_policy or policy, policy)
    return Ending.retry_later(task.id, task.version, delay=delay, error=text + note, outcome=outcome)


def describe(error: BaseException) -> str:
    """The full traceback, without the worker's own frames at its top."""
    try:
        return "".join(traceback.format_exception(type(error), error, _skip_ours(error.__traceback__))).rstrip()
    except Exception as broken:  # noqa: BLE001  the user's own class of exception
        return f"{type(error).__name__}: (its traceback cannot be shown: {type(broken).__name__})"


def describe_shortly(error: BaseException) -> str:
    """The exception in one line, whatever its own `__str__` does."""
    return "".join(traceback.TracebackException.from_exception(error).format_exception_only()).strip()


def _delay(task: ClaimedTask, error: BaseException, policy: RetryPolicy, default: RetryPolicy) -> tuple[float, str]:
    """The delay before the next attempt; a policy of the user's that fails itself is said, and replaced for once."""
    if isinstance(error, Retry) and error.delay is not None:
        return error.delay, ""
    try:
        return seconds_of(policy(task.retry_count, error)), ""
    except BaseException as broken:
        if is_interrupt(broken):
            raise
        return default(task.retry_count, error), f"\n(its retry policy failed too: {describe_shortly(broken)})"


def _skip_ours(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames
