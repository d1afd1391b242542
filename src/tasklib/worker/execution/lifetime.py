"""Tasks whose whole life is bounded: every attempt, retry and wait ends with it, and then the task fails for good."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tasklib.core.lifecycle import Ending, Event
from tasklib.definition import TaskOptions
from tasklib.errors import Abort
from tasklib.storage.rows import ClaimedTask


def begin_within(task: ClaimedTask, options: TaskOptions, default_timeout: float | None) -> Abort | None:
    """Bound the attempt by its timeout, and by what is left of the task's life; the error if nothing is.

    A row made by hand, by name or by a schedule has no timeout of its own: that of its declaration or of the settings
    applies.
    """
    if task.timeout_seconds is None:
        task.timeout_seconds = default_timeout if options.timeout_seconds is None else options.timeout_seconds
    if options.lifetime_seconds is None:
        return None
    left = options.lifetime_seconds - task.waited
    if left <= 0:
        return Abort(f"its lifetime of {options.lifetime_seconds:g} s is over: it was due {task.waited:.0f} s ago")
    task.timeout_seconds = min(inf if task.timeout_seconds is None else task.timeout_seconds, left)
    return None


def wait_within(task: ClaimedTask, options: TaskOptions, ending: Ending, ran: float) -> Ending:
    """The ending, with no longer a wait after it than is left of the task's life.

    What is parked waits for other code, however long: nothing is undone because of a bad deploy.
    """
    waits = ending.event is Event.SUSPEND or ending.delay is not None
    if options.lifetime_seconds is None or not waits or ending.outcome == "parked":
        return ending
    left = max(0.0, options.lifetime_seconds - task.waited - ran)
    return replace(ending, delay=left if ending.delay is None else min(ending.delay, left))
