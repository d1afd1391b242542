"""Workers that use the HTTP service's own code: requests to it are slow and get lost, and it can die under them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol
from uuid import UUID, uuid4

from tasklib import ClaimLost, StorageError, Task, TaskNotFound, TaskQueue
from tasklib.core.codec import encode_result
from tasklib.core.outcome import Reported
from tasklib.service.http_workers.workers import HttpWorkers, NotOwner, OwnedInstance, Registration
from tests.simulation.link import Link
from tests.simulation.loop import Process
from tests.simulation.truth import Truth

NAMES = ("plain", "limited", "keyed", "rated")
OWNER = "a token"
PATIENCE_SECONDS = 12.0
"""How long a client waits for an answer."""


class NoAnswer(Exception):
    """The request or its answer was lost, or the service could not do it."""


class Grid(Protocol):
    """What services and clients need of their world."""

    truth: Truth

    def connect(self, name: str) -> tuple[Process, Link, TaskQueue]:
        """A new process with a queue of its own."""
        ...


class HttpService:
    """The part of the HTTP service that workers use, in a process that is started again when it dies."""

    def __init__(self, grid: Grid, random: Random) -> None:
        self._grid = grid
        self._random = random
        self._starts = 0
        self.loss = 0.0
        self.start()

    def start(self) -> None:
        """Start it, in place of one that is gone."""
        self._starts += 1
        self.process, self.link, queue = self._grid.connect(f"http.{self._starts}")
        self.workers = self.process.context.copy().run(HttpWorkers, queue, threading.Event())

    async def ask(self, request: Callable[[HttpWorkers], Awaitable[Any]]) -> Any:
        """Send a request and wait for the answer."""
        await asyncio.sleep(self._random.uniform(0.001, 0.02))
        if not self.process.is_alive or self._random.random() < self.loss:
            await asyncio.sleep(0.5)
            raise NoAnswer
        answering = self.process.spawn(_awaited(request(self.workers)))
        answering.add_done_callback(_note_read)  # a reply that is lost may be an error, which nobody reads then
        await asyncio.wait({answering}, timeout=PATIENCE_SECONDS)
        if not answering.done() or self._random.random() < self.loss:
            raise NoAnswer
        try:
            return answering.result()
        except StorageError as error:
            raise NoAnswer from error


class HttpWorker:
    """A worker written by somebody else, in whatever language: it claims, works, beats and reports."""

    def __init__(self, process: Process, service: HttpService, truth: Truth, *, concurrency: int) -> None:
        self._process = process
        self._service = service
        self._truth = truth
        self._concurrency = concurrency
        self._running: dict[tuple[UUID, int], asyncio.Task[None]] = {}
        self._unknown: set[tuple[UUID, int]] = set()
        self._to_cancel: set[tuple[UUID, int]] = set()
        self._remote: OwnedInstance | None = None
        self.is_stopping = False

    async def run(self) -> None:
        """Work until stopped."""
        beating = asyncio.ensure_future(self._beat())
        while not self.is_stopping:
            try:
                if self._remote is None:
                    await self._register()
                await self._claim()
            except NoAnswer:
                await asyncio.sleep(0.5)
        beating.cancel()
        for work in list(self._running.values()):
            work.cancel()
        if self._remote is not None:
            remote = self._remote
            await self._until_answered(lambda workers: workers.astop_worker(remote))

    async def _register(self) -> None:
        instance = uuid4()
        who = Registration(
            instance=instance,
            worker_id=self._process.name,
            host="elsewhere",
            pid=1,
            timeout_seconds=6.0,
            concurrency=self._concurrency,
            names=NAMES,
            owner=OWNER,
        )
        await self._service.ask(lambda workers: workers.aregister(who))
        self._remote = OwnedInstance(instance, OWNER)

    async def _claim(self) -> None:
        free = self._concurrency - len(self._running)
        remote = self._remote
        if free <= 0 or remote is None:
            await asyncio.sleep(0.2)
            return
        claimed = await self._service.ask(lambda workers: workers.claim(remote, free, 5.0, self._is_gone))
        if claimed is None:
            self._declared_dead()
            return
        for task, _ in claimed:
            self._running[task.id, task.version] = asyncio.ensure_future(self._work(task))

    async def _is_gone(self) -> bool:
        return not self._process.is_alive

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1.5)
            remote = self._remote
            if remote is None:
                continue
            running = list(self._running.items())  # what is claimed during the request is not in its answer
            try:
                holding = await self._service.ask(lambda workers, remote=remote: workers.beat(remote))
            except NoAnswer:
                continue
            if holding is None:
                self._declared_dead()
                continue
            held = {(UUID(task_id), version) for task_id, version in holding.held}
            await self._release_unknown(held)
            self._to_cancel |= {key for key in held if str(key[0]) in holding.cancel}
            for key, work in running:
                if key not in held or key in self._to_cancel:
                    work.cancel()

    async def _release_unknown(self, held: set[tuple[UUID, int]]) -> None:
        """Give back what two heartbeats in a row name and no claim has told: the answer to that claim was lost."""
        unknown = held - self._running.keys()
        for key in sorted(unknown & self._unknown):
            with suppress(NoAnswer, ClaimLost, NotOwner, TaskNotFound):
                await self._service.ask(lambda workers, key=key: workers.release(*key, OWNER))
        self._unknown = unknown

    def _declared_dead(self) -> None:
        self._remote, self._unknown = None, set()
        for work in list(self._running.values()):
            work.cancel()

    async def _work(self, task: Task) -> None:
        key = task.id, task.version
        try:
            await self._report(task, await self._execute(task))
        except asyncio.CancelledError:
            if key in self._to_cancel:
                await self._report(task, None)
            raise
        finally:
            self._running.pop(key, None)
            self._to_cancel.discard(key)

    async def _execute(self, task: Task) -> int | str:
        behaviour, seconds = task.payload["behaviour"], task.payload["seconds"]
        with self._truth.executing(task, is_remote=True) as execution:
            await asyncio.sleep(1e6 if behaviour == "hang" else seconds)
            if behaviour == "kill" or (behaviour == "kill once" and task.attempts == 1):
                self._process.kill()
                await asyncio.sleep(1e6)
            if behaviour == "raise" or (behaviour == "raise once" and task.attempts == 1):
                execution.how = "failed"
                return "as asked for"
            return execution.number

    async def _report(self, task: Task, outcome: int | str | None) -> None:
        """Say how it ended, until the service has answered."""
        key = task.id, task.version
        if outcome is None:
            await self._until_answered(lambda workers: workers.end_cancelled(*key, OWNER))
        elif isinstance(outcome, int):
            result = encode_result(outcome, limit=1000)
            await self._until_answered(lambda workers: workers.complete(*key, result, OWNER))
        else:
            await self._until_answered(lambda workers: workers.fail(*key, Reported(outcome), OWNER))

    async def _until_answered(self, request: Callable[[HttpWorkers], Awaitable[Any]]) -> None:
        while True:
            try:
                await self._service.ask(request)
                return
            except NoAnswer:
                await asyncio.sleep(0.5)
            except (ClaimLost, NotOwner, TaskNotFound):
                return


def _note_read(answering: asyncio.Future[Any]) -> None:
    if not answering.cancelled():
        answering.exception()


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
