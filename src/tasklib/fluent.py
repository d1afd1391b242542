"""The fluent interface of a queue: `tq("crawl").set_worker(crawl).add({"url": …})`, with a worker in the background."""

from __future__ import annotations

import asyncio
import atexit
import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from tasklib.core.calls.import_guard import is_child
from tasklib.core.config import Config
from tasklib.core.limits import LocalLimits
from tasklib.core.queue_info import QueueStats
from tasklib.definition import Definition, TaskOptions, check_name
from tasklib.errors import ConfigurationError, NotInitialized
from tasklib.queue import TaskQueue

if TYPE_CHECKING:
    from tasklib.worker import Worker, WorkerSettings

Payload = TypeVar("Payload")
MAX_CONCURRENCY = 1000
"""What runs at once over all types; each type is bounded by its own worker count."""


class TaskType(Generic[Payload]):
    """One type of task; every method returns it, so that calls can be chained.

    Examples:
        >>> tq.init(queue, enable_worker=False)
        >>> crawl = tq("crawl").add({"url": "https://example.com/1"}).add({"url": "https://example.com/2"})
        >>> queue.count(name="crawl")
        2
    """

    def __init__(self, fluent: Fluent, name: str, payload: Any) -> None:
        self.name = name
        self._fluent = fluent
        self.payload = payload
        self._handler: Callable[..., Any] | None = None
        self._timeout: float | None = None

    def add(
        self,
        payload: Payload,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        **options: Any,
    ) -> Self:
        """Store a task of this type; returns after its commit.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> crawl = tq("crawl").add({"url": "https://example.com"}, max_attempts=10, priority=5)
            >>> queue.list()[0].max_attempts
            10
        """
        checked = self._checked(payload)
        options.setdefault("timeout_seconds", self._timeout)
        self._fluent.queue.enqueue(self.name, checked, max_attempts=max_attempts, run_after=run_after, **options)
        return self

    def set_worker(self, handler: Callable[[Payload], Any]) -> Self:
        """Run tasks of this type with a function that takes the payload, here, in the background.

        Examples:
            >>> tq.init("sqlite:///:memory:")
            >>> done = threading.Event()
            >>> crawl = tq("crawl").set_worker(lambda payload: done.set()).add({"url": "https://example.com"})
            >>> done.wait(60)
            True
            >>> asyncio.run(tq.stop())
        """
        self._register(handler)
        self._handler = handler
        self._fluent.start_worker()
        return self

    def set_worker_count(self, count: int) -> Self:
        """How many tasks of this type run at once in this process; 1 by default.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> crawl = tq("crawl").set_worker_count(3)
        """
        self._fluent.limits.set_count(self.name, count)
        return self

    def set_rate_limit(self, tasks_per_second: float) -> Self:
        """How many tasks of this type this process starts in a second; 0 is unlimited.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> crawl = tq("crawl").set_rate_limit(10)
        """
        self._fluent.limits.set_rate(self.name, tasks_per_second)
        return self

    def set_timeout(self, seconds: float) -> Self:
        """How long one attempt may run.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> crawl = tq("crawl").set_timeout(300).add({"url": "https://example.com"})
            >>> queue.list()[0].timeout_seconds
            300
        """
        TaskOptions.for_task(self.name, timeout_seconds=seconds)
        self._timeout = seconds
        if self._handler is not None:
            self._register(self._handler)
        return self

    if not TYPE_CHECKING:  # a type checker shall find a misspelt method by itself

        def __getattr__(self, name: str) -> Any:
            """An error that says how Python spells the method."""
            meant = re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), name)
            hint = f"; write {meant}" if meant != name and hasattr(type(self), meant) else ""
            raise AttributeError(f"a type of tq has no {name!r}{hint}", name=name, obj=self)

    def _register(self, handler: Callable[..., Any]) -> None:
        """Make the handler known in place of another one, which stays if this one cannot be."""
        registry = self._fluent.queue.registry
        options = TaskOptions.for_task(self.name, timeout_seconds=self._timeout)
        definition = Definition.for_handler(self.name, handler, options, self.payload)
        registry.remove(self.name)
        registry.add(definition)
        self._fluent.limits.default_count(self.name)

    def _checked(self, payload: Any) -> Any:
        """The payload as JSON, checked against the declared type even where no handler is set."""
        if self.payload is None or self._handler is not None:
            return payload
        limit = self._fluent.queue.config.max_payload_bytes
        taker = Definition.for_handler(self.name, _take, None, self.payload)
        return taker.bind_payload(payload, limit=limit)


class Fluent:
    """`tq`: a queue whose tasks are set up and added by chained calls.  Set it up once with `tq.init(...)`.

    Examples:
        >>> tq.init("sqlite:///:memory:")
        >>> crawled = threading.Event()
        >>> crawl = tq("crawl").set_worker(lambda payload: crawled.set()).set_worker_count(3).set_timeout(300)
        >>> crawl = crawl.add({"url": "https://example.com/1"})
        >>> crawled.wait(60)
        True
        >>> asyncio.run(tq.stop())
    """

    def __init__(self) -> None:
        self._queue: TaskQueue | None = None
        self._types: dict[str, TaskType[Any]] = {}
        self._background: _Background | None = None
        self._settings: dict[str, Any] = {}
        self._enabled = True
        self.limits = LocalLimits()

    def init(
        self,
        database: str | Config | TaskQueue | None = None,
        *,
        poll_interval: float = 1.0,
        batch_size: int = 10,
        task_timeout: float = 300,
        enable_worker: bool = True,
    ) -> None:
        """Choose the database; `task_timeout` is the lease after which a silent worker's tasks run elsewhere.

        With `enable_worker=False` this process only adds tasks.

        Examples:
            >>> tq.init("sqlite:///:memory:", enable_worker=False)
            >>> tq.stats().total
            0
        """
        if self._background is not None:
            raise ConfigurationError("tq is working already; await tq.stop() before tq.init() is called again")
        settings = {"poll_interval_seconds": poll_interval, "batch_size": batch_size, "prefetch": 0}
        if enable_worker:
            _worker_settings(settings)
        if isinstance(database, TaskQueue):
            self._queue = database
        else:
            self._queue = TaskQueue(Config.of(database).with_(lock_timeout_seconds=task_timeout))
        self._settings = settings
        self._enabled = enable_worker
        self._types, self.limits = {}, LocalLimits()

    @property
    def queue(self) -> TaskQueue:
        """The queue behind it; NotInitialized before `init`."""
        if self._queue is None:
            raise NotInitialized('tq is not set up: call tq.init("sqlite:///tasks.db") first')
        return self._queue

    @overload
    def __call__(self, name: str) -> TaskType[Any]: ...
    @overload
    def __call__(self, name: str, payload: type[Payload]) -> TaskType[Payload]: ...
    def __call__(self, name: str, payload: Any = None) -> TaskType[Any]:
        """The type of this name; `payload` declares what its payloads are checked against and arrive as."""
        _ = self.queue
        check_name(name)
        known = self._types.get(name)
        if known is None or (payload is not None and known.payload is not payload):
            known = self._types[name] = TaskType(self, name, payload)
        return known

    def pause(self) -> None:
        """Stop starting tasks, on every worker of this database; running ones finish.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> tq.pause()
            >>> tq.is_paused()
            True
        """
        self.queue.pause()

    def resume(self) -> None:
        """Start tasks again.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> tq.pause()
            >>> tq.resume()
            >>> tq.is_paused()
            False
        """
        self.queue.resume()

    def is_paused(self) -> bool:
        """Whether everything is paused now.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> tq.is_paused()
            False
        """
        return self.queue.is_paused()

    def stats(self) -> QueueStats:
        """How many tasks are in each state.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> crawl = tq("crawl").add({"url": "https://example.com"})
            >>> tq.stats().pending
            1
        """
        return self.queue.stats()

    def is_running(self) -> bool:
        """Whether the worker in the background runs.

        Examples:
            >>> tq.init(queue, enable_worker=False)
            >>> tq.is_running()
            False
        """
        return self._background is not None

    def start_worker(self) -> None:
        """Start the worker in the background, unless it runs or is switched off.

        Examples:
            >>> tq.init("sqlite:///:memory:")
            >>> tq.start_worker()
            >>> tq.is_running()
            True
            >>> asyncio.run(tq.stop())
        """
        # A child process imports the program to run its tasks, not to start another worker.
        if self._enabled and self._background is None and not is_child():
            self._background = _Background(self.queue, {**self._settings, "limits": self.limits})
            self._background.start()
            atexit.register(self._stop)

    async def stop(self) -> None:
        """Let running tasks finish, end the worker in the background, and close the database.

        Examples:
            >>> tq.init("sqlite:///:memory:")
            >>> asyncio.run(tq.stop())
        """
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            atexit.unregister(self._stop)
            background.stop()
        if self._queue is not None:
            self._queue.close()


class _Background:
    """A worker on an event loop of its own, in a thread."""

    def __init__(self, queue: TaskQueue, settings: dict[str, Any]) -> None:
        self._queue = queue
        self._settings = settings
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._run, name="tasklib-tq", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        if self._loop is not None and self._worker is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join()

    def _run(self) -> None:
        from tasklib.worker.program_end import run_in_thread

        run_in_thread(self._work())

    async def _work(self) -> None:
        from tasklib.worker import Worker

        self._loop, self._worker = asyncio.get_running_loop(), Worker(self._queue, _worker_settings(self._settings))
        self._started.set()
        await self._worker.run()


def _worker_settings(chosen: Mapping[str, Any]) -> WorkerSettings:
    """The settings of the worker in the background; ConfigurationError names one that cannot be."""
    from tasklib.worker import WorkerSettings

    return WorkerSettings(concurrency=MAX_CONCURRENCY, signals=False, **chosen)


def _take(payload: Any) -> None:
    """Stands for the handler another process has, so that payloads can be checked here."""


tq = Fluent()
"""The one everybody shares; make a `Fluent()` of your own for a second database."""
