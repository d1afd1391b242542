"""Recording the steps of a worker's tasks: a single one at once, many in one statement, each fenced by its claim."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.retry import OUTAGE_PAUSE, OUTAGES
from tasklib.errors import ClaimLost
from tasklib.storage.database import Database
from tasklib.storage.operations.limits import budgets
from tasklib.storage.operations.workflows import events as events_
from tasklib.storage.operations.workflows import groups
from tasklib.storage.operations.workflows import steps as steps_
from tasklib.storage.operations.workflows.marks import HAS_STEPS, OWNER, note_recorded
from tasklib.storage.rows import ClaimedTask
from tasklib.storage.statement import Operation, T
from tasklib.worker.control import WorkerControl
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.workflows.effects import Request

BATCH = 200
"""Steps that one statement records at most."""

log = logging.getLogger("tasklib.worker")


class StepJournal(Protocol):
    """Where a workflow's requests go: to the worker's database, or from a child process to its worker over a pipe."""

    async def ask(self, task: ClaimedTask, request: Request) -> Any:
        """Await the answer."""
        ...

    def ask_blocking(self, task: ClaimedTask, request: Request) -> Any:
        """Wait for the answer, blocking this thread, which runs no event loop."""
        ...


REQUESTS: Final[Mapping[str, Callable[..., Operation[Any]]]] = {
    "load": lambda task: steps_.load_steps(task.id),
    "note": lambda task, key, note: steps_.note_step(task.id, key, note),
    "open_wait": lambda task, step, events: events_.open_wait(task.id, task.version, step, events),
    "renew_wait": lambda task, **asked: events_.renew_wait(task.id, task.version, **asked),
    "take": lambda task, key, events: events_.take_event(task.id, task.version, key, events),
    "open_group": lambda task, **params: groups.open_group(task.id, task.version, **params),
    "add_members": lambda task, group, **more: groups.add_members(task.id, task.version, group, **more),
    "look_at_group": lambda task, group: groups.look_at_group(task.id, task.version, group),
    "seal_group": lambda task, group: groups.seal_group(task.id, task.version, group),
    "restart_children": lambda task, group, **more: groups.restart_children(task.id, task.version, group, **more),
    "spend": lambda task, step, name, cost: budgets.spend(task.id, task.version, step, name, cost),
    "now": lambda task: steps_.read_time(),
}
"""The requests other than recording; their parameters are JSON, so that child processes can send them too."""


class Recording(NamedTuple):
    """A step to record, and the future that waits for it."""

    step: dict[str, Any]
    recorded: asyncio.Future[bool]
    marked: bool
    """Whether the task's row is already marked, so that recording the step need not change it."""


class Journal:
    """The journal of a worker: requests of all its tasks, from its event loop, its threads and its child processes."""

    def __init__(self, database: Database, control: WorkerControl, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._timing = control.timing
        self._waiting: list[Recording] = []
        self._writing: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The worker's event loop, where threads ask."""

    async def ask(self, task: ClaimedTask, request: Request) -> Any:
        """The answer; the request is repeated while the database is away."""
        if request.name == "record":
            return await self._record(task, dict(request.params))
        if request.name == "count":
            return self._metrics.note_step(task.name, request.params["state"])
        make = REQUESTS[request.name]
        answer: Any = await self._persist(lambda: make(task, **request.params))
        match request:
            case Request("open_wait", params):
                note_recorded(task, params["step"])
            case Request("open_group", params):
                note_recorded(task, params["step"], OWNER)
            case Request("spend") if answer["state"] in ("open", "done"):
                note_recorded(task, answer)
            case _:
                pass
        return answer

    def ask_blocking(self, task: ClaimedTask, request: Request) -> Any:
        """The same for a thread: the request runs on the worker's event loop."""
        assert self.loop is not None
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

        async def answering() -> None:
            try:
                answer.set_result(await self.ask(task, request))
            except BaseException as error:  # noqa: BLE001  the thread gets it
                answer.set_exception(error)

        # In an empty context: what is started here belongs to the worker and not to a task.
        context = contextvars.Context()
        self.loop.call_soon_threadsafe(lambda: self._begin(answering()), context=context)
        return answer.result()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = own_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _record(self, task: ClaimedTask, step: dict[str, Any]) -> None:
        recorded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        marked = task.marks & HAS_STEPS > 0 and task.retry_count == 0 and step.get("undo") is None
        self._waiting.append(Recording(step | {"task_id": task.id, "version": task.version}, recorded, marked))
        if self._writing is None or self._writing.done():
            self._writing = contextvars.Context().run(own_task, self._write())
        if not await recorded:
            raise ClaimLost(UUID(task.id), task.version)
        note_recorded(task, step)
        if step["state"] != "open":
            self._metrics.note_step(task.name, step["state"])

    async def _write(self) -> None:
        """Record what waits; what arrives during one statement shares the next."""
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            await self._write_batch(batch)

    async def _write_batch(self, batch: list[Recording]) -> None:
        steps = [each.step for each in batch]
        marked = self._database.dialect == "postgres" and all(each.marked for each in batch)
        try:
            refused = await self._persist(lambda: steps_.try_record_steps(steps, marked=marked))
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to one of the steps
            if len(batch) > 1:
                # One that cannot be stored must not fail the others.
                for each in batch:
                    await self._write_batch([each])
            elif not batch[0].recorded.done():
                batch[0].recorded.set_exception(error)
            return
        except BaseException:
            for each in batch:
                each.recorded.cancel()
            raise
        for step, recorded, _ in batch:
            if not recorded.done():
                recorded.set_result((step["task_id"], step["key"]) not in refused)

    async def _persist(self, make: Callable[[], Operation[T]]) -> T:
        """The database's answer, retrying while it is away: repeating is harmless, because every write is fenced."""
        failures = 0
        while True:
            try:
                return await self._database.arun(make)
            except OUTAGES as error:
                if failures == 0:
                    log.warning("cannot record steps, trying until the database is back: %s", error)
                await self._timing.sleep(OUTAGE_PAUSE(failures))
                failures += 1
