"""Storing what was sent: one task, many, or a schedule; and once only under an idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.task import NewTask, TaskFilter, TaskId
from tasklib.errors import UniqueConflict
from tasklib.http.errors import Refused
from tasklib.http.schemas.inputs import CreateTask
from tasklib.http.schemas.schedules import CreatedSchedule
from tasklib.http.schemas.tasks import Created
from tasklib.http.security.joining import Submitter
from tasklib.queue import TaskQueue
from tasklib.storage.operations import lists, tasks
from tasklib.storage.operations.access.audit import AuditEntry, entries_text, write_audit
from tasklib.storage.operations.access.idempotency import Once, do_once
from tasklib.storage.statement import BEGIN, Operation
from tasklib.submission import Merger, with_secrets


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to answer: whether something was made, and what it is."""

    made: bool
    body: list[Created] | CreatedSchedule
    repeated: bool = False
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The ids of the tasks that are new and of those that were rewritten, without those that were there already."""

    @property
    def tasks(self) -> list[Created]:
        """What was made, where it is tasks."""
        assert not isinstance(self.body, CreatedSchedule)
        return self.body


class Creator:
    """Stores single tasks with their entries in the audit log: those of the same moment in one transaction."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._merger = Merger(self._send)
        self._entries: dict[UUID, AuditEntry] = {}
        self._created_at: dict[UUID, datetime] = {}

    async def create(self, body: CreateTask, sender: Submitter, entry: Callable[[UUID], AuditEntry]) -> Outcome:
        """Store one task and say so in the log, or neither."""
        await self._queue.alearn_secrets()
        new = _new(self._queue, body, sender)
        self._entries[new.id] = entry(new.id)
        try:
            task_id = await self._merger.submit(new)
            created_at = self._created_at.get(new.id)
        except UniqueConflict as conflict:
            raise sender.shown(conflict) from conflict
        finally:
            self._entries.pop(new.id, None)
            self._created_at.pop(new.id, None)
        if created_at is not None:
            return Outcome(True, [Created(id=new.id, type=new.name, status="pending", created_at=created_at)])
        found = await self._queue.database.arun(lambda: _read([new], [task_id], sender, self._queue.clock.now()))
        return Outcome(task_id.created, found)

    async def _send(self, new: Sequence[NewTask]) -> list[TaskId]:
        return await self._queue.database.arun(lambda: self._store(new, self._queue.clock.now()))

    def _store(self, new: Sequence[NewTask], now: datetime | None) -> Operation[list[TaskId]]:
        """The tasks with their entries, which for those with a unique key are known only when they are stored."""
        entries = [self._entries[task.id] for task in new if task.unique_key is None]
        keyed = [(at, task) for at, task in enumerate(new) if task.unique_key is not None]
        if keyed:
            yield BEGIN
        ids = yield from tasks.submit_tasks(
            new, now, created_at=self._created_at, entries=entries_text(entries) if entries else None
        )
        late = [
            replace(
                self._entries[task.id], detail={"id": str(ids[at]), **({} if "ids" in changed else {"replaced": True})}
            )
            for at, task in keyed
            if (changed := _changed([task], [ids[at]]))
        ]
        if late:
            yield from write_audit(late, now)
        return ids


async def create_tasks(queue: TaskQueue, bodies: Sequence[CreateTask], sender: Submitter) -> Outcome:
    """Store tasks, all or none."""
    new, now = [_new(queue, body, sender) for body in bodies], queue.clock.now()
    return await queue.database.arun(lambda: _store(new, sender, now))


async def create_schedule(queue: TaskQueue, body: CreateTask) -> Outcome:
    """Make a task that runs again and again; the same one sent twice is one."""
    repeat, options = body.options.repeat, body.options
    assert repeat is not None
    unfit = [name for name in ("unique_key", "expires_at") if getattr(options, name) is not None]
    if unfit:
        raise Refused(400, "invalid-request", "a repeated task cannot have it", field=f"options.{unfit[0]}")
    chosen = {
        "max_retries": None if options.max_attempts is None else options.max_attempts - 1,
        **{name: getattr(options, name) for name in ("priority", "tags", "timeout_seconds", "concurrency_key")},
    }
    schedule = await queue.aadd_schedule(
        repeat.name or _schedule_name(body),
        task=body.type,
        cron=repeat.cron,
        every=repeat.every,
        tz=repeat.tz,
        kwargs=body.payload,
        secrets=list(queue.secret_places.of(body.type)),
        misfire=repeat.misfire,
        overlap=repeat.overlap,
        starts_at=options.run_after,
        ends_at=repeat.ends_at,
        options={name: value for name, value in chosen.items() if value is not None},
    )
    return Outcome(True, CreatedSchedule.of(schedule))


async def create_once(queue: TaskQueue, bodies: Sequence[CreateTask], key: str, sender: Submitter) -> Outcome:
    """Store tasks, all or none, once under the sender's key however often they are sent."""
    new, now = [_new(queue, body, sender) for body in bodies], queue.clock.now()
    fingerprint = _digest([body.model_dump(mode="json") for body in bodies])

    def work() -> Operation[Any]:
        stored = yield from _store(new, sender, now)
        shown = [each.model_dump(mode="json", by_alias=False) for each in stored.tasks]
        return {"made": stored.made, "tasks": shown, "changed": dict(stored.changed)}

    # A key has no space in it, so that no caller can write another one's.
    once: Once = await queue.database.arun(lambda: do_once(f"{sender.identity} {key}", fingerprint, work, now))
    if once.answer is None:
        raise Refused(
            409, "idempotency-conflict", f"the key {key!r} was used for another request; use a new one for each request"
        )
    made: bool = once.answer["made"]
    return Outcome(made, [Created.model_validate(each) for each in once.answer["tasks"]], once.repeated)


def once_told(once: Once) -> dict[str, Any] | None:
    """What the audit log says of tasks created under a key; None if nothing was changed."""
    return None if once.repeated or once.answer is None else once.answer["changed"] or None


def many_told(outcome: Outcome) -> Mapping[str, Any] | None:
    """What the audit log says of tasks created together; None if all were there already."""
    return outcome.changed or None


def _store(new: Sequence[NewTask], sender: Submitter, now: datetime | None) -> Operation[Outcome]:
    yield BEGIN  # what may not be told of is found after the rest was stored
    try:
        ids = yield from tasks.submit_tasks(new, now)
    except UniqueConflict as conflict:
        raise sender.shown(conflict) from conflict
    found = yield from _read(new, ids, sender, now)
    return Outcome(any(each.created for each in ids), found, changed=_changed(new, ids))


def _changed(new: Sequence[NewTask], ids: Sequence[TaskId]) -> dict[str, list[str]]:
    """The ids of what was really made or rewritten, by how; empty if every task was there already."""
    both = list(zip(new, ids, strict=True))
    made = [str(each.id) for _, each in both if each.created]
    replaced = [str(each.id) for task, each in both if not each.created and task.on_conflict == "replace"]
    return {what: found for what, found in (("ids", made), ("replaced", replaced)) if found}


def _new(queue: TaskQueue, body: CreateTask, sender: Submitter) -> NewTask:
    """The row of a task that was sent, marked with its sender and the secrets that its workers tell of."""
    new = queue.new_by_name(body.type, body.payload, **body.options.submission())
    return sender.mark(with_secrets(new, queue.secret_places.of(body.type)))


def _read(
    new: Sequence[NewTask], ids: Sequence[TaskId], sender: Submitter, now: datetime | None
) -> Operation[list[Created]]:
    if len(ids) == 1:
        one = yield from tasks.get_task(ids[0].id)
        stored = {} if one is None else {one.id: one}
    else:
        which = TaskFilter(ids=tuple(each.id for each in ids))
        stored = {task.id: task for task in (yield from lists.list_tasks(which, now, limit=len(ids)))}
    answers: list[Created] = []
    for task, task_id in zip(new, ids, strict=True):
        found = stored.get(task_id.id)
        if not task_id.created:
            sender.require_own(task, found)
        answers.append(_gone(task, task_id) if found is None else Created.of(found))
    return answers


def _gone(task: NewTask, task_id: TaskId) -> Created:
    """A task that was finished and cleaned up between its submission and this answer."""
    return Created(id=task_id.id, type=task.name, status="completed", created_at=datetime.now(UTC))


def _schedule_name(body: CreateTask) -> str:
    return f"{body.type[:200]}:{_digest(body.model_dump(mode='json'))[:12]}"


def _digest(value: Any) -> str:
    return hashlib.sha256(dumps(value).encode("utf-8", "surrogatepass")).hexdigest()
