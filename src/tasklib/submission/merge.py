"""Concurrent submissions of single tasks, stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakKeyDictionary

from tasklib.core.retry import OUTAGES
from tasklib.core.task import NewTask
from tasklib.core.task_id import TaskId
from tasklib.submission.stream import CHUNK


class Merger:
    """Concurrent submissions of one event loop share one statement while another is in flight.

    A lone submission is sent at once; those that arrive meanwhile share the next statement.  A caller gets the
    id of its task only after the commit that stores it.
    """

    def __init__(self, send: Callable[[Sequence[NewTask]], Awaitable[Sequence[TaskId]]]) -> None:
        self._send = send
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopMerger] = WeakKeyDictionary()

    async def submit(self, new: NewTask) -> TaskId:
        """Store one task, perhaps together with others."""
        loop = asyncio.get_running_loop()
        merger = self._by_loop.get(loop)
        if merger is None:
            merger = self._by_loop[loop] = _LoopMerger(self._send)
        return await merger.submit(new)


class _LoopMerger:
    """The submissions of one event loop."""

    def __init__(self, send: Callable[[Sequence[NewTask]], Awaitable[Sequence[TaskId]]]) -> None:
        self._send = send
        self._waiting: list[tuple[NewTask, asyncio.Future[TaskId]]] = []
        self._sending = False
        self._drainer: asyncio.Task[None] | None = None

    async def submit(self, new: NewTask) -> TaskId:
        # A unique key may raise a conflict, which concerns this caller only.
        if new.unique_key is not None:
            return (await self._send([new]))[0]
        if self._sending:
            answer: asyncio.Future[TaskId] = asyncio.get_running_loop().create_future()
            self._waiting.append((new, answer))
            return await answer
        self._sending = True
        try:
            return (await self._send([new]))[0]
        finally:
            self._sending = bool(self._waiting)
            if self._waiting:
                self._drainer = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
                await self._send_batch([entry for entry in batch if not entry[1].done()])
        finally:
            self._sending = False

    async def _send_batch(self, batch: Sequence[tuple[NewTask, asyncio.Future[TaskId]]]) -> None:
        if not batch:
            return
        try:
            ids = await self._send([new for new, _ in batch])
        except Exception as error:  # noqa: BLE001  each caller gets it
            if len(batch) > 1 and not isinstance(error, OUTAGES):
                # One refused row must not fail the others.
                for entry in batch:
                    await self._send_batch([entry])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        except BaseException:
            for _, answer in batch:
                answer.cancel()
            raise
        else:
            for (_, answer), task_id in zip(batch, ids, strict=True):
                if not answer.done():
                    answer.set_result(task_id)
