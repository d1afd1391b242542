"""Storing tasks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, Unpack, cast, overload

from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import current_context, transaction_here
from tasklib.core.calls.import_guard import refuse_while_loading
from tasklib.core.calls.signature import shows_options
from tasklib.core.codec import plain
from tasklib.core.numbers import is_whole
from tasklib.core.redaction import SECRETS_HEADER
from tasklib.core.task import SUBMITTER_HEADER, NewTask, TaskBatch
from tasklib.core.task_id import TaskId, TaskIds
from tasklib.definition import NO_TASK_OPTIONS, Definition, TaskOptions, check_name
from tasklib.errors import ConfigurationError
from tasklib.queue.base import QueueBase
from tasklib.queue.instrumentation import send_through
from tasklib.queue.results import TaskResults
from tasklib.queue.sync_async import require_asyncio
from tasklib.storage.operations import tasks
from tasklib.storage.statement import Operation
from tasklib.submission import NO_OPTIONS, Merger, SubmitKeywords, SubmitOptions, mark_secrets, new_task
from tasklib.submission.stream import Chunk, Stored

log = logging.getLogger("tasklib.queue")

ENQUEUE_MAX_RETRIES = 2
"""Tasks submitted by name get three attempts unless the options say otherwise."""
UNDECIDED = -1
"""The retries of a task whose declaration is not known here: the worker that claims it first decides."""
NO_PAYLOAD: Final[dict[str, Any]] = {}
"""The payload of a task that is given none; `None` is a payload, JSON's null.  Never changed."""


class SubmitsTasks(QueueBase):
    """By name, from a definition, in the caller's transaction, one or many."""

    @shows_options(SubmitOptions)
    def enqueue(
        self,
        name: str,
        payload: Any = NO_PAYLOAD,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> TaskId:
        """Store a task by name; no function of that name is needed here.

        Examples:
            >>> task_id = queue.enqueue("send_email", {"to": "ada@example.com"}, max_attempts=5, priority=3)
            >>> queue.get(task_id).max_attempts
            5
        """
        new = self.new_by_name(name, payload, max_attempts=max_attempts, run_after=run_after, **options)
        return self.submit_new([new], options.get("connection"))[0]

    @shows_options(SubmitOptions)
    async def aenqueue(
        self,
        name: str,
        payload: Any = NO_PAYLOAD,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> TaskId:
        """The awaiting form of `enqueue`."""
        new = self.new_by_name(name, payload, max_attempts=max_attempts, run_after=run_after, **options)
        return await self.asubmit_one(new, options.get("connection"))

    def new_task(self, definition: Definition, kwargs: Any, options: SubmitOptions) -> NewTask:
        """The row for a task of this queue, its arguments already plain JSON."""
        row = self.make_row(definition.name, kwargs, options, definition.options, self.config.max_retries)
        return mark_secrets(row, definition)

    def new_by_name(
        self,
        name: str,
        payload: Any = NO_PAYLOAD,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        is_complete: bool = True,
        **options: Unpack[SubmitKeywords],
    ) -> NewTask:
        """The row that `enqueue` would store, checked but not stored; `submit_new` stores many at once.

        A payload that is not complete, because results of other tasks come into it, is checked when it runs.
        """
        if max_attempts is not None:
            _refuse_both("max_attempts", "max_retries", options.get("max_retries"))
            options["max_retries"] = _attempts(max_attempts) - 1
        if run_after is not None:
            _refuse_both("run_after", "run_at", options.get("run_at"))
            options["run_at"] = run_after
        chosen = NO_OPTIONS.with_(**options)
        definition = self.registry.get(check_name(name))
        limit = self.config.max_payload_bytes
        known = NO_TASK_OPTIONS if definition is None else definition.options
        if definition is not None and is_complete:
            stored = definition.bind_payload(payload, limit=limit)
        else:
            stored = plain(payload, what=name, limit=limit)
        return mark_secrets(self.make_row(name, stored, chosen, known, ENQUEUE_MAX_RETRIES), definition)

    @overload
    def submit_new(self, new: TaskBatch, connection: Any = None) -> TaskIds: ...
    @overload
    def submit_new(self, new: Sequence[NewTask], connection: Any = None) -> list[TaskId]: ...
    @overload
    def submit_new(self, new: Chunk, connection: Any = None) -> Stored: ...
    def submit_new(self, new: Chunk, connection: Any = None) -> Stored:
        """Store rows made by `new_task`: on the caller's connection, or in a transactional task, in its transaction."""
        if not self.senders:
            return self._store_blocking(new, connection)
        with ExitStack() as stack:
            return self._store_blocking(send_through(self.senders, new, stack), connection)

    def _store_blocking(self, new: Chunk, connection: Any) -> Stored:
        refuse_while_loading("a task is submitted")
        connection = transaction_here(connection, self.database)
        submit = partial(_submission, new)
        stored = self.database.run(submit) if connection is None else self.database.run_on(connection, submit)
        return self._signed(new, stored)

    @overload
    async def asubmit_new(self, new: TaskBatch, connection: Any = None) -> TaskIds: ...
    @overload
    async def asubmit_new(self, new: Sequence[NewTask], connection: Any = None) -> list[TaskId]: ...
    @overload
    async def asubmit_new(self, new: Chunk, connection: Any = None) -> Stored: ...
    async def asubmit_new(self, new: Chunk, connection: Any = None) -> Stored:
        """The awaiting form of `submit_new`."""
        if not self.senders:
            return await self._store(new, connection)
        with ExitStack() as stack:
            return await self._store(send_through(self.senders, new, stack), connection)

    async def _store(self, new: Chunk, connection: Any = None) -> Stored:
        refuse_while_loading("a task is submitted")
        require_asyncio()
        connection = transaction_here(connection, self.database)
        submit = partial(_submission, new)
        if connection is None:
            return self._signed(new, await self.database.arun(submit))
        return self._signed(new, await self.database.arun_on(connection, submit))

    async def asubmit_one(self, new: NewTask, connection: Any = None) -> TaskId:
        """Store one row, merged with others of the same moment."""
        require_asyncio()
        if transaction_here(connection, self.database) is not None:
            return (await self.asubmit_new([new], connection))[0]
        if not self.senders:
            return await self._merger.submit(new)
        with ExitStack() as stack:
            (carrying,) = cast("Sequence[NewTask]", send_through(self.senders, [new], stack))
            return await self._merger.submit(carrying)

    def is_joined(self, connection: Any) -> bool:
        """Whether what is submitted here joins a transaction that is open already."""
        return transaction_here(connection, self.database) is not None

    def _signed(self, new: Chunk, stored: Stored) -> Stored:
        """The ids, each knowing whom to ask for its result."""
        if log.isEnabledFor(logging.DEBUG):
            _log_stored(new, stored)
        for each in (stored,) if isinstance(stored, TaskIds) else stored:
            each.made_by(self._results)
        return stored

    @cached_property
    def _results(self) -> TaskResults:
        return TaskResults(self)

    @cached_property
    def _merger(self) -> Merger:
        return Merger(cast("Callable[[Sequence[NewTask]], Awaitable[Sequence[TaskId]]]", self._store))

    def make_row(self, name: str, kwargs: Any, options: SubmitOptions, task: TaskOptions, max_retries: int) -> NewTask:
        """The row of a task, with the headers it inherits."""
        running: TaskContext | None = current_context(None)
        if running is not None or self.header_sources:
            inherited = dict(running.headers) if running is not None else {}
            for own in (SECRETS_HEADER, SUBMITTER_HEADER):  # they describe the other task
                inherited.pop(own, None)
            for source in self.header_sources:
                given: Any = source()
                if not isinstance(given, Mapping):
                    raise ConfigurationError(
                        f"{source!r} was given to add_headers, and must return a mapping of names to JSON values, "
                        f"got {given!r}; return {{}} for none"
                    )
                inherited.update(cast("Mapping[str, Any]", given))
            options = options.with_(headers={**inherited, **options.headers})
        timeout = self.config.default_task_timeout_seconds
        return new_task(name, kwargs, options, task, max_retries=max_retries, timeout=timeout)


def _submission(new: Chunk) -> Operation[Stored]:
    if isinstance(new, TaskBatch):
        return tasks.submit_batch(new)
    return tasks.submit_tasks(new)


def _log_stored(new: Chunk, stored: Stored) -> None:
    """One line for each task, or for a batch; asked for at DEBUG only, because there are so many."""
    if isinstance(new, TaskBatch):
        log.debug("%d tasks %s enqueued", new.count, new.like.name, extra={"task_name": new.like.name})
        return
    for each, task_id in zip(new, stored, strict=False):
        log.debug("task %s %s enqueued", each.name, task_id, extra={"task_name": each.name, "task_id": str(task_id)})


def _attempts(value: Any) -> int:
    if not is_whole(value) or value < 1:
        raise ConfigurationError(f"max_attempts must be a whole number, 1 or more, got {value!r}")
    return value


def _refuse_both(one: str, other: str, given: Any) -> None:
    if given is not None:
        raise ConfigurationError(f"give {one} or {other}, not both ({other} was {given!r}): they mean the same")
