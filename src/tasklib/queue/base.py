"""The state that all parts of a queue share: its settings, its database and what programs have registered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from tasklib.core.calls.middleware import EndHook, ErrorHook, Middleware
from tasklib.core.config import Config
from tasklib.core.schedule import Plan
from tasklib.core.time.clock import Clock
from tasklib.core.time.timing import SystemTiming, Timing
from tasklib.definition import Registry
from tasklib.queue.instrumentation import Sender, note_queue
from tasklib.queue.secret_places import SecretPlaces
from tasklib.queue.test_guard import guarded
from tasklib.storage import connect
from tasklib.storage.database import Database

Hook = Callable[..., Any]
HeaderSource = Callable[[], Mapping[str, Any]]


class QueueBase:
    """The parts of a queue share this; they add methods and no state."""

    def __init__(
        self,
        database: str | Config | None = None,
        *,
        registry: Registry | None = None,
        clock: Clock | None = None,
        timing: Timing | None = None,
        store: Database | None = None,
    ) -> None:
        """`store` replaces the database that would be opened for the configuration; it brings its own clock."""
        self.config = Config.of(database)
        self.registry = Registry() if registry is None else registry  # one without tasks yet is empty, so false
        self.timing: Timing = timing or SystemTiming()
        self.restarts_workflows = False
        self.secret_places = SecretPlaces(self.registry)
        self.startup_hooks: list[Hook] = []
        self.shutdown_hooks: list[Hook] = []
        self.middleware: list[Middleware] = []
        self.error_hooks: list[ErrorHook] = []
        self.end_hooks: list[EndHook] = []
        self.header_sources: list[HeaderSource] = []
        self.senders: list[Sender] = []
        self.declared_schedules: list[Plan] = []
        self.worker_loops: list[asyncio.AbstractEventLoop] = []
        """On each of them a worker of this queue runs; twice if two do."""
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self._database = store or guarded(connect(self.config, clock), self.config, given=database is not None)
        note_queue(self)

    @property
    def database(self) -> Database:
        """Where the tasks are stored."""
        return self._database

    @property
    def clock(self) -> Clock:
        """What time it is for the tasks: the database's clock, or one that a test sets."""
        return self._database.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._database.clock = clock

    def __repr__(self) -> str:
        return f"<TaskQueue {self.config!r}>"

    def migrate(self) -> list[str]:
        """Bring the database's tables up to date; returns the names of the migrations applied.

        Examples:
            >>> queue.migrate()
            ['0001_initial']
            >>> queue.migrate()
            []
        """
        return self.database.migrate()

    async def amigrate(self) -> list[str]:
        """The awaiting form of `migrate`."""
        return await asyncio.to_thread(self.database.migrate)

    def close(self) -> None:
        """Close every connection; the queue opens new ones if it is used again.

        Examples:
            >>> with TaskQueue("sqlite:///:memory:") as other:  # closed at the end
            ...     other.count()
            0
        """
        self.database.close()

    async def aclose(self) -> None:
        """The awaiting form of `close`, from within an event loop."""
        for stop in self._before_close:
            await stop()
        await self.database.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def stop_before_close(queue: QueueBase, stop: Callable[[], Awaitable[None]]) -> None:
    """Have `stop` called before the queue closes within an event loop.

    It ends background work there, which would open connections again.
    """
    queue._before_close.append(stop)  # noqa: SLF001  for the service, not for users
