"""Bugs on purpose in what people and programs control: pauses, limits, timeouts, schedules, deletes, submissions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tasklib.core.schedule import Plan
from tasklib.queue.methods.submitting import SubmitsTasks
from tasklib.storage.operations.limits.names import HeldLimits
from tasklib.storage.operations.limits.pauses import EVERYTHING
from tasklib.worker.execution.attempt import Attempt
from tasklib.worker.execution.held_tasks import HeldTasks
from tasklib.worker.execution.running_attempt import StopReason
from tasklib.worker.intake.claimer import Claimer
from tests.simulation.breaking import NO_SELF_FENCE, Bug, both, replaced, sql
from tests.simulation.control import LoopTiming

LONG_SECONDS = 1e6
_room, _stop, _wait_for_work, _due = HeldLimits.room, Attempt.stop, Claimer._wait_for_work, Plan.due


def _room_of_names(held: HeldLimits, most: int, caps: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    named = [limit for limit in held.limits if limit.name]
    asked = HeldLimits(named, [name for name in held.elsewhere if name != EVERYTHING], held.running)
    return _room(asked, most, caps)


def _stop_and_end(attempt: Attempt, reason: StopReason) -> None:
    _stop(attempt, reason)
    attempt.abandon()


async def _wait_for_a_notice(claimer: Claimer, claimed: Any) -> None:
    claimer._selection.poll_seconds = LONG_SECONDS
    await _wait_for_work(claimer, claimed)


def _due_once(plan: Plan, tick: datetime, now: datetime) -> tuple[list[datetime], datetime | None]:
    ticks, following = _due(plan, tick, now)
    return ticks[-1:], following


def _take_no_notice(*_: Any) -> None:
    """What has changed elsewhere changes nothing here."""


BUGS: dict[str, Bug] = {
    "a pause of everything is not asked": sql(
        "claim_tasks", "c.name IN ('', n.value) AND c.paused_at", "c.name = n.value AND c.paused_at"
    ),
    "the limit of everything is not asked": replaced(HeldLimits, "room", _room_of_names),
    "the rate of everything costs nothing": sql("spend_tokens", "l.name IN ('', t.name)", "l.name = t.name"),
    "the limit of a key is not asked": sql("find_keyed", "r.rank <= m.room", "1"),
    "a slot is free before its task has ended": replaced(Attempt, "stop", _stop_and_end),
    "no timeout of a coroutine is watched": replaced(Attempt, "limit_time", _take_no_notice),
    "what others have taken over is begun": both(replaced(HeldTasks, "drop", _take_no_notice), NO_SELF_FENCE),
    "what a transactional task submits is stored at once": replaced(
        SubmitsTasks, "_joined", lambda self, connection: connection
    ),
    "a worker relies on notifications": replaced(Claimer, "_wait_for_work", _wait_for_a_notice),
    "of missed ticks only the last is made up for": replaced(Plan, "due", _due_once),
    "time is what the wall clock says": replaced(LoopTiming, "monotonic", lambda self: time.time()),
    "what lives is deleted": sql("delete_tasks", "AND completed_at IS NOT NULL", ""),
}
