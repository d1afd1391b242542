"""Storing tasks by name and payload: one, many, or exactly once under an idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self, cast
from uuid import UUID

from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import SUBMITTER_HEADER, NewTask, Task
from tasklib.core.task_id import TaskId
from tasklib.errors import TaskLibError, UniqueConflict
from tasklib.queue import TaskQueue
from tasklib.queue.instrumentation import Sending, headers_from, send_through
from tasklib.queue.sync_async import operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import Addition, ServicePart
from tasklib.storage.operations import tasks
from tasklib.storage.operations.access.audit import write_audit
from tasklib.storage.operations.access.idempotency import Once, do_once
from tasklib.storage.operations.reading import lists
from tasklib.storage.statement import BEGIN, Operation, recall
from tasklib.submission import Merger, with_secrets


class KeyTaken(UniqueConflict):
    """Another task holds the unique key, and the caller may not see which."""

    def __init__(self, name: str, unique_key: str) -> None:
        super().__init__(name, unique_key, None)
        TaskLibError.__init__(
            self,
            f"a live task of {name!r} already holds the unique key {unique_key!r}; nothing was stored; "
            "wait until it has ended, or use another key",
        )


@dataclass(frozen=True, slots=True)
class Submission:
    """A task to be stored; `options` are the keywords of `TaskQueue.enqueue`."""

    name: str
    payload: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sender:
    """Who stores tasks, and whether it may read those of others.

    If another sender's task has the same unique key, one that may not read it learns only that the key is in use.
    """

    identity: str
    reads_all: bool

    def mark(self, new: NewTask) -> NewTask:
        """The row, marked with its sender if it has a unique key, because others could find it by that key."""
        if new.unique_key is None:
            return new
        return replace(new, headers={**new.headers, SUBMITTER_HEADER: self._digest})

    def require_own(self, new: NewTask, holder: Task | None) -> None:
        """Refuse to show the task that holds the key of a new one, unless the sender sent it or may read it."""
        if not self.reads_all and (holder is None or holder.headers.get(SUBMITTER_HEADER) != self._digest):
            raise KeyTaken(new.name, new.unique_key or "")

    def shown(self, conflict: UniqueConflict) -> UniqueConflict:
        """The conflict as the sender may see it: with the other task's id only if it may read every task."""
        return conflict if self.reads_all else KeyTaken(conflict.name, conflict.unique_key)

    @property
    def _digest(self) -> str:
        """Distinguishes senders without naming them to readers of the task."""
        return hashlib.sha256(self.identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as stored: new, or the one that holds the unique key already."""

    id: UUID
    name: str
    state: str
    created_at: datetime

    @classmethod
    def of(cls, task: Task) -> Self:
        """The fields that are shown of a task."""
        return cls(task.id, task.name, str(task.state), task.created_at)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `as_data`."""
        return cls(UUID(data["id"]), data["name"], data["state"], datetime.fromisoformat(data["created_at"]))

    def as_data(self) -> dict[str, Any]:
        """The same in JSON."""
        return {"id": str(self.id), "name": self.name, "state": self.state, "created_at": self.created_at.isoformat()}


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of submissions."""

    made: bool
    """Whether any of the tasks is new."""
    tasks: Sequence[StoredTask]
    repeated: bool = False
    """Whether an earlier request with the same idempotency key stored them."""
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The ids of new and of replaced tasks, without those that existed already."""


class Creation(ServicePart):
    """Stores tasks; concurrent single ones share a transaction, with their entries in the audit log."""

    def __init__(self, queue: TaskQueue) -> None:
        super().__init__(queue)
        self._merger = Merger(self._astore)
        self._entries: dict[UUID, AuditEntry] = {}
        self._created_at: dict[UUID, datetime] = {}

    async def create(self, submission: Submission, sender: Sender, audit: AuditEntry) -> Stored:
        """Store one task and its entry in the audit log, or neither."""
        # Even an operation that sends nothing takes a connection, and on SQLite a thread.
        if not self.queue.secret_places.is_fresh:
            await self.database.arun(self.queue.secret_places.learn)
        new = self._new(submission, sender)
        if not self.queue.senders:
            return await self._create(new, sender, audit)
        with ExitStack() as stack:
            (traced,) = cast("Sequence[NewTask]", send_through(self.queue.senders, [new], stack))
            return await self._create(traced, sender, audit)

    async def _create(self, new: NewTask, sender: Sender, audit: AuditEntry) -> Stored:
        self._entries[new.id] = replace(audit, detail={"id": str(new.id)})
        try:
            task_id = await self._merger.submit(new)
            created_at = self._created_at.get(new.id)
        except UniqueConflict as conflict:
            raise sender.shown(conflict) from conflict
        finally:
            self._entries.pop(new.id, None)
            self._created_at.pop(new.id, None)
        if created_at is not None:
            return Stored(True, [StoredTask(new.id, new.name, "pending", created_at)])
        found = await self.database.arun(lambda: self._find([new], [task_id], sender))
        return Stored(task_id.created, found)

    @operation
    def create_many(
        self, submissions: Sequence[Submission], sender: Sender, *, audit: AuditEntry | None = None
    ) -> Operation[Stored]:
        """Store tasks, all or none."""
        new = yield from self._rows(submissions, sender)
        return (yield from self.audited(self._store_all(new, sender), audit, lambda stored: stored.changed or None))

    _acreate_many = create_many.as_async

    async def acreate_many(
        self, submissions: Sequence[Submission], sender: Sender, *, audit: AuditEntry | None = None
    ) -> Stored:
        """The awaiting form of `create_many`."""
        with ExitStack() as stack:
            return await self._acreate_many(self._traced(submissions, stack), sender, audit=audit)

    @operation
    def create_once(
        self,
        submissions: Sequence[Submission],
        sender: Sender,
        *,
        key: str,
        fingerprint: str,
        audit: AuditEntry | None = None,
    ) -> Operation[Stored | None]:
        """Store tasks, all or none, once under the sender's key, however often the request is sent.

        None if the key was used for a request with another fingerprint.
        """
        new = yield from self._rows(submissions, sender)

        def work() -> Operation[Any]:
            stored = yield from self._store_all(new, sender)
            shown = [each.as_data() for each in stored.tasks]
            return {"made": stored.made, "tasks": shown, "changed": dict(stored.changed)}

        doing = do_once(sender.identity, key, fingerprint, work)
        once = yield from self.audited(doing, audit, _changed_once)
        if once.answer is None:
            return None
        return Stored(once.answer["made"], [StoredTask.from_data(each) for each in once.answer["tasks"]], once.repeated)

    _acreate_once = create_once.as_async

    async def acreate_once(
        self,
        submissions: Sequence[Submission],
        sender: Sender,
        *,
        key: str,
        fingerprint: str,
        audit: AuditEntry | None = None,
    ) -> Stored | None:
        """The awaiting form of `create_once`."""
        with ExitStack() as stack:
            traced = self._traced(submissions, stack)
            return await self._acreate_once(traced, sender, key=key, fingerprint=fingerprint, audit=audit)

    def _traced(self, submissions: Sequence[Submission], stack: ExitStack) -> Sequence[Submission]:
        """The submissions with the headers of tracing, added here because rows are made in another context."""
        if not self.queue.senders or not submissions:
            return submissions
        sending = Sending(submissions[0].name, (), len(submissions))
        headers = headers_from(self.queue.senders, sending, stack)
        return [
            replace(each, options={**each.options, "headers": {**each.options.get("headers", {}), **headers}})
            for each in submissions
        ]

    def _rows(self, submissions: Sequence[Submission], sender: Sender) -> Operation[list[NewTask]]:
        """The rows to store: the same rows with the same ids when the call is repeated."""
        yield from self.queue.secret_places.learn()
        memory = yield from recall()
        if "rows" not in memory:
            memory["rows"] = [self._new(each, sender) for each in submissions]
        rows: list[NewTask] = memory["rows"]
        return rows

    def _new(self, submission: Submission, sender: Sender) -> NewTask:
        """The row of a submission, marked with its sender and with the secrets that its workers declare."""
        new = self.queue.new_by_name(submission.name, submission.payload, **submission.options)
        return sender.mark(with_secrets(new, self.queue.secret_places.of(submission.name)))

    @operation
    def _store(self, new: Sequence[NewTask]) -> Operation[list[TaskId]]:
        """Store tasks with their audit entries; for tasks with a unique key the entry depends on the outcome."""
        entries = [self._entries[task.id] for task in new if task.unique_key is None]
        keyed = [(at, task) for at, task in enumerate(new) if task.unique_key is not None]
        if keyed:
            yield BEGIN
        ids = yield from tasks.submit_tasks(new, created_at=self._created_at, entries=entries)
        late = [
            replace(
                self._entries[task.id], detail={"id": str(ids[at]), **({} if "ids" in changed else {"replaced": True})}
            )
            for at, task in keyed
            if (changed := _changed([task], [ids[at]]))
        ]
        if late:
            yield from write_audit(late)
        return ids

    _astore = _store.as_async

    def _store_all(self, new: Sequence[NewTask], sender: Sender) -> Operation[Stored]:
        yield BEGIN  # rolled back if one of them holds a key of another sender, which is found at the end
        try:
            ids = yield from tasks.submit_tasks(new)
        except UniqueConflict as conflict:
            raise sender.shown(conflict) from conflict
        found = yield from self._find(new, ids, sender)
        return Stored(any(each.created for each in ids), found, changed=_changed(new, ids))

    def _find(self, new: Sequence[NewTask], ids: Sequence[TaskId], sender: Sender) -> Operation[list[StoredTask]]:
        if len(ids) == 1:
            one = yield from tasks.get_task(ids[0].id)
            stored = {} if one is None else {one.id: one}
        else:
            which = TaskFilter(ids=tuple(each.id for each in ids))
            found = yield from lists.list_tasks(which, limit=len(ids))
            stored = {task.id: task for task in found}
        answers: list[StoredTask] = []
        for task, task_id in zip(new, ids, strict=True):
            holder = stored.get(task_id.id)
            if not task_id.created:
                sender.require_own(task, holder)
            answers.append(_gone(task, task_id) if holder is None else StoredTask.of(holder))
        return answers


def _changed_once(once: Once) -> Addition:
    return None if once.repeated or once.answer is None else once.answer["changed"] or None


def _changed(new: Sequence[NewTask], ids: Sequence[TaskId]) -> dict[str, list[str]]:
    """The ids of new and of replaced tasks; empty if every task existed already."""
    both = list(zip(new, ids, strict=True))
    made = [str(each.id) for _, each in both if each.created]
    replaced = [str(each.id) for task, each in both if not each.created and task.on_conflict == "replace"]
    return {what: found for what, found in (("ids", made), ("replaced", replaced)) if found}


def _gone(task: NewTask, task_id: TaskId) -> StoredTask:
    """A task that was finished and cleaned up between its submission and this answer."""
    return StoredTask(task_id.id, task.name, "completed", datetime.now(UTC))
