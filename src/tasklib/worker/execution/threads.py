"""Plain functions in threads: they can be asked to end, and not be made to."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from typing import Any

from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Attempt, StopReason
from tasklib.worker.execution.call import Caller
from tasklib.worker.execution.executor import Source
from tasklib.worker.execution.thread_pool import NoMoreThreads, ThreadPool


class Threads:
    """Runs functions that block, each in a thread."""

    name = "thread"
    stops_surely = False
    shares_process = True

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._pool = ThreadPool()

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Every function that is no coroutine function."""
        return not definition.is_async

    def has_room(self, attempt: Attempt) -> bool:
        """No more than run at once."""
        return False

    def start(self, source: Source) -> None:
        """Begin one after the other, each in a thread."""
        while (attempt := source.take(self)) is not None:
            source.note_running(attempt)
            source.hold_slot(attempt)
            self._begin(attempt)

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Leave the thread to itself.  A person who asks for the end waits for it: the function was asked to end."""
        if reason is not StopReason.CANCELLED:
            asyncio.get_running_loop().call_soon(self._leave, attempt)

    async def close(self) -> None:
        """Let idle threads end."""
        self._pool.close()

    def _begin(self, attempt: Attempt) -> None:
        loop = asyncio.get_running_loop()
        try:
            call = self._caller.prepare(attempt.definition, attempt.task, attempt.context)
            attempt.work = self._pool.run(functools.partial(contextvars.copy_context().run, call))
        except NoMoreThreads:
            attempt.stop_reason = StopReason.RELEASED  # Not begun, so no attempt is spent.
            loop.call_soon(attempt.end, attempt.stopped())
        except BaseException as error:  # noqa: BLE001  the converters of the user's types run here
            # Later, so that a row of failures is no recursion.
            loop.call_soon(attempt.end, attempt.raised(error))
        else:
            attempt.work.add_done_callback(functools.partial(self._over, attempt))
            attempt.limit_time()

    @staticmethod
    def _leave(attempt: Attempt) -> None:
        if attempt.work is not None and not attempt.work.done():
            attempt.abandon()

    @staticmethod
    def _over(attempt: Attempt, outcome: asyncio.Future[Any]) -> None:
        """The function has returned or raised."""
        if attempt.is_ended:
            return
        try:
            result = outcome.result()
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            attempt.end(attempt.raised(error))
        else:
            attempt.end(attempt.returned(result))
