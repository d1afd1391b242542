"""Running tasks, and serving the queue over HTTP."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.limits import LocalLimits
from tasklib.core.time.timing import Timing
from tasklib.errors import ConfigurationError
from tasklib.queue.arguments import check_whole
from tasklib.queue.base import QueueBase
from tasklib.queue.in_transaction import TransactionSubmitter, session_submitter
from tasklib.queue.sync_async import operation, require_asyncio
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation

R = TypeVar("R")

STOP_LOOK_SECONDS = 0.1
"""How often a worker looks whether its stop event is set."""


class WorkerKeywords(TypedDict, total=False):
    """The other settings of a worker; `tasklib.worker.WorkerSettings` says what each means."""

    poll_interval_seconds: float
    prefetch: int | None
    grace_seconds: float
    batch_size: int | None
    limits: LocalLimits
    only: tuple[str, ...]
    max_stuck_threads: int
    max_tasks_per_child: int
    memory_limit_mb: int | None
    modules: tuple[str, ...]
    executor: str | None
    scheduler: str | None
    signals: bool


class RunsTasks(QueueBase):
    """Workers, one batch or for good."""

    @operation
    def recover_stale_tasks(self) -> Operation[int]:
        """Take back at once every task whose worker is overdue or whose lease has passed; returns how many.

        It goes by the database's clock alone.  Workers do the same by themselves, and more carefully: they observe a
        worker for a full `worker_timeout_seconds`, so that an outage or a step of that clock declares none dead.
        Do not call this right after one.

        Examples:
            >>> queue.recover_stale_tasks()
            0
        """
        recovery = yield from workers.recover_stale(self.config.backoff)
        return recovery.tasks

    arecover_stale_tasks = recover_stale_tasks.as_async

    def process_batch(self, limit: int | None = None) -> int:
        """Run what is due now once, the ticks of schedules too, in this process, and return how many tasks were run.

        Examples:
            >>> ids = add.submit_many({"a": number} for number in range(3))
            >>> queue.process_batch(limit=2), queue.process_batch(), queue.process_batch()
            (2, 1, 0)
        """
        return run_coroutine(lambda: self.aprocess_batch(limit))

    async def aprocess_batch(self, limit: int | None = None) -> int:
        """The awaiting form of `process_batch`."""
        require_asyncio()
        if limit is not None:
            check_whole("limit", limit)
        worker_module = _import_late("worker")
        worker = worker_module.Worker(self, worker_module.WorkerSettings(concurrency=10, signals=False))
        done: int = await worker.run_once(limit)
        return done

    def run(self, concurrency: int = 1, *, stop: StopEvent | None = None, **settings: Unpack[WorkerKeywords]) -> None:
        """Work on this queue's tasks until SIGTERM, SIGINT, or until `stop` is set; then let running tasks finish.

        In another thread than the main one no signal arrives: give a `threading.Event` as `stop`, and set it.  The end
        of the program stops it too.

        Examples:
            >>> stop = threading.Event()
            >>> worker = threading.Thread(target=queue.run, kwargs={"concurrency": 4, "stop": stop})
            >>> worker.start()
            >>> add.submit(1, 2).wait(timeout=60)
            3
            >>> stop.set()
            >>> worker.join()
        """
        if _is_inside_a_loop():
            raise ConfigurationError(
                "queue.run() blocks, and would hold the event loop that it was called in; "
                "write `await queue.arun(...)` there, or call it in a thread"
            )
        settings.setdefault("signals", True)
        _import_late("worker.program_end").run_in_thread(self.arun(concurrency, stop=stop, **settings))

    async def arun(
        self, concurrency: int = 1, *, stop: StopEvent | None = None, **settings: Unpack[WorkerKeywords]
    ) -> None:
        """The awaiting form of `run`; cancelling it, or setting `stop`, drains and stops the worker.

        Signals are left to the program around it, unless `signals=True` says otherwise.
        """
        require_asyncio()
        worker = _import_late("worker").Worker(self, self._worker_settings(concurrency, settings))
        async with _stopping_when(stop, worker.stop, self.timing):
            await worker.run()

    def lifespan(
        self, concurrency: int = 1, **settings: Unpack[WorkerKeywords]
    ) -> Callable[..., AbstractAsyncContextManager[None]]:
        """A worker that runs as long as an ASGI application: `FastAPI(lifespan=queue.lifespan(concurrency=4))`.

        It starts with the application and drains when the application stops, within `grace_seconds`; signals are left
        to the server.  In a lifespan of your own: `async with queue.lifespan(concurrency=4)(app):`.

        Examples:
            >>> from fastapi import FastAPI
            >>> app = FastAPI(lifespan=queue.lifespan(concurrency=4))
        """
        if settings.get("signals"):
            raise ConfigurationError(
                "queue.lifespan() leaves signals to the server around it, which ends the lifespan; leave out signals="
            )
        checked = self._worker_settings(concurrency, settings)

        @asynccontextmanager
        async def lifespan(app: Any = None) -> AsyncGenerator[None]:
            require_asyncio()
            worker = _import_late("worker").Worker(self, checked)
            async with _import_late("worker.embedded").working_beside(worker):
                yield

        return lifespan

    def submitter(self, session: Any) -> Callable[..., TransactionSubmitter]:
        """A FastAPI dependency whose `submit` stores tasks in the transaction of another dependency, the session.

        `Annotated[TransactionSubmitter, Depends(queue.submitter(get_session))]`: what it submits is committed or
        rolled back together with everything else the request writes through that session.  `session` is the function
        that gives it, or the `Depends(...)` or `Annotated` type with which the routes ask for it.

        Examples:
            >>> from fastapi import Depends
            >>> def get_session() -> Iterator[sqlite3.Connection]:
            ...     with sqlite3.connect("app.db") as session:
            ...         yield session
            >>> Tasks = Annotated[TransactionSubmitter, Depends(queue.submitter(get_session))]
            >>> def create_order(order: int, tasks: Tasks) -> None:  # a route
            ...     tasks.submit(add, order)
        """
        return session_submitter(session)

    def _worker_settings(self, concurrency: int, settings: WorkerKeywords) -> Any:
        _check_settings(settings)
        settings.setdefault("poll_interval_seconds", self.config.poll_interval_seconds)
        settings.setdefault("signals", False)
        return _import_late("worker").WorkerSettings(concurrency=concurrency, **settings)

    def asgi(self, *, auth: str | Callable[[Any], Any] | None, hosts: Iterable[str] | None = None) -> Any:
        """The HTTP service of this queue, to be served or mounted: `app.mount("/tasks", queue.asgi(auth="tokens"))`.

        `auth` has no default.  "tokens": every request brings one, made by `tasklib token create`.  "local": open to
        this machine itself until the first token exists, not through a proxy and under no other name.  A function of
        the request: the caller's role, or None to refuse.  None: nothing is checked here, because the application
        around it does.

        Examples:
            >>> from fastapi import FastAPI
            >>> app = FastAPI()
            >>> app.mount("/queue", queue.asgi(auth=lambda request: "viewer"))
        """
        try:
            http = _import_late("http.app")
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"the HTTP service needs {error.name}, which is not installed: pip install 'tasklib-queue[serve]'"
            ) from error
        return http.create_app(self, auth=auth, hosts=hosts)


def _import_late(module: str) -> Any:
    """A module of a higher layer, imported when it is needed: a queue only starts its worker and its HTTP service."""
    return importlib.import_module(f"tasklib.{module}")


class StopEvent(Protocol):
    """A `threading.Event`, or an event of asyncio: set to end a worker."""

    def is_set(self) -> bool:
        """Whether the worker is to stop."""
        ...


@asynccontextmanager
async def _stopping_when(event: StopEvent | None, stop: Callable[[], None], timing: Timing) -> AsyncGenerator[None]:
    """Call `stop` once the event is set."""

    async def watch(event: StopEvent) -> None:
        # Polled, because an event of threads cannot be awaited.
        while not event.is_set():
            await timing.sleep(STOP_LOOK_SECONDS)
        stop()

    watching = None if event is None else own_task(watch(event))
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _check_settings(given: WorkerKeywords) -> None:
    if unknown := set(given) - WorkerKeywords.__annotations__.keys():
        known = ", ".join(WorkerKeywords.__annotations__)
        raise ConfigurationError(
            f"a worker has no setting {', '.join(sorted(unknown))}; choose from concurrency, {known}"
        )


def run_coroutine(
    make: Callable[[], Coroutine[Any, Any, R]], make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> R:
    """Run a coroutine to its end, blocking; inside a running event loop on a thread with its own."""

    def run() -> R:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            return runner.run(make())

    if not _is_inside_a_loop():
        return run()
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["value"] = run()
        except BaseException as error:  # noqa: BLE001  raised again in the calling thread
            outcome["error"] = error

    thread = threading.Thread(target=work, name="tasklib-run")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    value: R = outcome["value"]
    return value
