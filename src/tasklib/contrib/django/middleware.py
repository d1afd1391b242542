"""What surrounds each attempt in a Django worker: its database connections, and the framework's signals."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections, reset_queries

from tasklib.contrib.django.backend import TasklibBackend, read_many
from tasklib.contrib.django.framework import TaskResultMismatch, signals
from tasklib.contrib.django.results import result_of
from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.middleware import Middleware

log = logging.getLogger("tasklib.django")


class AttemptMiddleware(Middleware):
    """Every attempt begins with usable connections and leaves none behind; `task_started` is sent once for each.

    A coroutine gets a thread of its own for Django's database code, as a request does under ASGI: what one task does
    with a connection cannot disturb another that waits.
    """

    def __init__(self, backend: TasklibBackend) -> None:
        self._backend = backend

    def before(self, ctx: TaskContext) -> None:
        """Close what is broken or too old, and announce the start."""
        close_old_connections()
        reset_queries()
        signals.task_started.send_robust(type(self._backend), task_result=result_of(ctx.task, self._backend))

    def after(self, ctx: TaskContext, result: Any) -> None:
        """Close what is broken or too old."""
        close_old_connections()

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """Close what is broken or too old."""
        close_old_connections()

    async def abefore(self, ctx: TaskContext) -> None:
        """Open the coroutine's own thread, and announce the start there."""
        thread = ctx.scratch[self] = ThreadSensitiveContext()
        await thread.__aenter__()
        result = result_of(ctx.task, self._backend)
        await signals.task_started.asend_robust(type(self._backend), task_result=result)

    async def aafter(self, ctx: TaskContext, result: Any) -> None:
        """Close the connections of the coroutine's thread, and end it."""
        await self._leave(ctx)

    async def afailed(self, ctx: TaskContext, error: BaseException) -> None:
        """Close the connections of the coroutine's thread, and end it."""
        await self._leave(ctx)

    async def _leave(self, ctx: TaskContext) -> None:
        thread = ctx.scratch.pop(self)
        await sync_to_async(connections.close_all)()
        await thread.__aexit__(None, None, None)


class EndSignals:
    """Sends `task_finished` for every task that has ended for good, after the end is recorded, in a thread of its own.

    Receivers may use the database there, and the worker does not wait for them.
    """

    def __init__(self, backend: TasklibBackend) -> None:
        self._backend = backend
        self._inbox: queue.SimpleQueue[Sequence[str] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, ids: Sequence[str]) -> None:
        """Announce these soon."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tasklib-django-signals", daemon=True)
            self._thread.start()
        self._inbox.put(ids)

    def close(self) -> None:
        """Announce what is left, and end."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join(CLOSE_SECONDS)
            self._thread = None

    def _work(self) -> None:
        while (ids := self._inbox.get()) is not None:
            try:
                announce_ends(self._backend, ids)
            except Exception:
                log.exception("task_finished was not sent for %d tasks", len(ids))
            finally:
                close_old_connections()
        connections.close_all()


CLOSE_SECONDS: Final = 10.0
"""How long a worker that stops waits for receivers of the last signals."""


def announce_ends(backend: TasklibBackend, ids: Sequence[str]) -> None:
    """Send `task_finished` for tasks that have ended for good."""
    for stored, finished_by in backend.queue.database.run(partial(read_many, ids)):
        if stored.completed_at is None:
            continue  # retried by a person since
        try:
            result = result_of(stored, backend, finished_by)
        except TaskResultMismatch:
            continue  # not a task of this framework
        signals.task_finished.send_robust(type(backend), task_result=result)


def close_old_connections() -> None:
    """Close this thread's connections that are broken or too old, but none in a transaction, such as that of a test."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
