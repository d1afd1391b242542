"""Gathering the evidence of why a task is not running, all at one moment."""

from __future__ import annotations

from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.insights.explain import MAX_AHEAD, Children, Evidence, KeySeen, LimitSeen, Shortage
from tasklib.core.limits import Limit
from tasklib.core.task import TaskState
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.limits.keys import get_key_limit, list_slots
from tasklib.storage.operations.limits.pauses import EVERYTHING, list_limits, list_pauses
from tasklib.storage.operations.tasks import require_task
from tasklib.storage.operations.workers import list_workers
from tasklib.storage.rows import uuid
from tasklib.storage.statement import Operation, Statement


def gather_evidence(task_id: UUID) -> Operation[Evidence]:
    """Everything that can keep the task from running."""
    clock = yield from read_clock()
    task = yield from require_task(task_id)
    workers = yield from list_workers()
    paused = yield from list_pauses()
    pauses = [pause for pause in paused if pause.name is None or pause.name == task.name]
    limits: list[LimitSeen] = []
    for limit in (yield from list_limits()):
        if limit.name is None or limit.name == task.name:
            holders = yield from _holders(limit)
            limits.append(LimitSeen(limit, holders))
    ahead = 0
    if task.state in (TaskState.PENDING, TaskState.FAILED) and task.due_at is not None:
        able = [worker for worker in workers if worker.alive and task.name in worker.names]
        known = {name for worker in able for name in worker.names} - {pause.name for pause in paused}
        names = sorted(known | {task.name})
        counting = {"id": str(task_id), "names": dumps(names), "limit": MAX_AHEAD + 1}
        ahead = (yield Statement("count_ahead_in_key" if task.concurrency_key else "count_ahead", counting))[0]["count"]
    key = (yield from _key_of(task.concurrency_key, task.name)) if task.concurrency_key else None
    running: dict[UUID, int] = {}
    if any(task.name in worker.limits for worker in workers):
        rows = yield Statement("count_held_of", {"name": task.name})
        running = {uuid(row["instance"]): row["running"] for row in rows}
    waited = (yield Statement("count_children", {"id": str(task_id)})) if task.waits_for is not None else ()
    children = Children(**waited[0]) if waited and waited[0]["total"] else None
    budgets = (yield Statement("find_shortage", {"id": str(task_id)})) if task.waits_for is not None else ()
    shortages = [Shortage(**row) for row in budgets]
    return Evidence(task, clock, pauses, workers, limits, key, ahead, running, children, shortages)


def _key_of(key: str, name: str) -> Operation[KeySeen]:
    limit = yield from get_key_limit(key, name)
    holders = (yield from list_slots(limit)) if limit.max_running else ()
    return KeySeen(key, limit.max_running, holders, limit.name)


def _holders(limit: Limit) -> Operation[tuple[str, ...]]:
    """The tasks that use up a limit of what runs at once."""
    if limit.max_running is None:
        return ()
    asked = {"name": limit.name or EVERYTHING, "limit": limit.max_running}
    return tuple(str(row["id"]) for row in (yield Statement("list_running", asked)))
