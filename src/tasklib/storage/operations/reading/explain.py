"""Gathering the evidence of why a task is not running, all at one moment."""

from __future__ import annotations

from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.insights.explain import MAX_AHEAD, Before, Children, Evidence, KeySeen, LimitSeen, Shortage
from tasklib.core.limits import Limit
from tasklib.core.task import TaskState
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.limits.keys import get_key_limit, list_slots
from tasklib.storage.operations.limits.pauses import EVERYTHING, list_limits, list_pauses
from tasklib.storage.operations.tasks import require_task
from tasklib.storage.operations.workers import list_workers
from tasklib.storage.rows import json_value, moment, uuid
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
        able = [worker for worker in workers if worker.takes(task.name)]
        known = {name for worker in able for name in worker.names} - {pause.name for pause in paused}
        names = sorted(known | {task.name})
        counting = {"id": str(task_id), "names": dumps(names), "limit": MAX_AHEAD + 1}
        ahead = (yield Statement("count_ahead_in_key" if task.concurrency_key else "count_ahead", counting))[0]["count"]
    key = (yield from _key_of(task.concurrency_key, task.name)) if task.concurrency_key else None
    running: dict[UUID, int] = {}
    if any(task.name in worker.limits for worker in workers):
        rows = yield Statement("count_held_of", {"name": task.name})
        running = {uuid(row["instance"]): row["running"] for row in rows}
    held = (yield Statement("find_instance_of", {"id": str(task_id)})) if task.state is TaskState.RUNNING else ()
    waiting = "" if task.waits_for is None else task.waits_for
    children = (yield from _children(task_id)) if waiting.startswith("children") else None
    before = (yield from _before(task_id)) if waiting.startswith("prerequisites") else ()
    question = (yield from _question(task_id, waiting.partition(" ")[2])) if waiting.startswith("answer") else None
    budgets = (yield Statement("find_shortage", {"id": str(task_id)})) if task.waits_for is not None else ()
    shortages = [Shortage(**row) for row in budgets]
    return Evidence(
        *(task, clock, pauses, workers, limits, key, ahead, running, children, shortages, before, question),
        held_by=uuid(held[0]["instance"]) if held else None,
    )


def _children(task_id: UUID) -> Operation[Children | None]:
    counted = yield Statement("count_children", {"id": str(task_id)})
    if not counted or not counted[0]["total"]:
        return None
    rows = yield Statement("find_oldest_child", {"id": str(task_id)})
    oldest = Before(str(rows[0]["id"]), rows[0]["name"], rows[0]["state"]) if rows else None
    since = moment(rows[0]["created_at"]) if rows else None
    return Children(**counted[0], oldest=oldest, oldest_since=since)


def _before(task_id: UUID) -> Operation[list[Before]]:
    rows = yield Statement("list_before", {"id": str(task_id)})
    found = {str(row["id"]): Before(str(row["id"]), row["name"], row["state"]) for row in rows}
    return list(found.values())


def _question(task_id: UUID, key: str) -> Operation[str | None]:
    rows = yield Statement("get_record", {"id": str(task_id), "key": key})
    ask = json_value(rows[0]["ask"]) if rows else None
    return None if ask is None else str(ask["question"])


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
