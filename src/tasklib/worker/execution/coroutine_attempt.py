"""Coroutines begin in lanes, many in one asyncio task: what ends without waiting never needs a task of its own.

A lane takes coroutines from the hand and runs each until it waits.  One that does keeps the lane as its own asyncio
task (it had its own context variables from the beginning), and another lane goes on with the rest.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import Enum
from types import CoroutineType, coroutine
from typing import Any, Final

from tasklib.core.base_exceptions import carry
from tasklib.core.context import make_current
from tasklib.core.middleware import wrap_async
from tasklib.core.outcome import Completion
from tasklib.core.own_tasks import OwnTask, own_task
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Ended, Execution, Runner
from tasklib.worker.supervisor.running_table import RunningTable

SLICE_SECONDS = 0.005
"""How long a lane works before others have the event loop."""
SLICE_TASKS = 150
"""How many ends it collects at most: the database records them while the lane goes on."""

Completed = list[tuple[ClaimedTask, Completion]]


class Waits(Enum):
    """What a first step says of a coroutine that has not ended in it."""

    WAITS = "waits"


WAITS: Final = Waits.WAITS


class CoroutineAttempt(Execution):
    """An attempt at a coroutine that begins in a lane, and is worth an asyncio task only if it waits."""

    __slots__ = ("_coroutine", "_variables", "_waited")

    _definition: Definition
    ending: asyncio.Future[Any]

    def first_step(self) -> Ended | Waits:
        """Run the function until it waits for something, here and now: how it ended, or WAITS."""
        self._variables = contextvars.copy_context()
        try:
            self._coroutine = self._variables.run(self._call)
        except BaseException as error:  # noqa: BLE001  the converters of the user's types run here
            return self._raised(error)
        try:
            self._waited = self._variables.run(self._coroutine.send, None)
        except StopIteration as stop:
            return self._returned(stop.value)
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            return self._raised(error)
        return WAITS

    async def go_on(self) -> None:
        """Run the rest in this asyncio task, and tell how it ended."""
        try:
            result = await self._rest(self._coroutine, self._variables, self._waited)
        except GeneratorExit:
            raise  # The event loop is gone, and with it whoever could be told; the function's own comes as Carried.
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            if isinstance(error, asyncio.CancelledError):
                await self._ask_who_cancelled()
            self._report(self._raised(error))
        else:
            self._report(self._returned(result))

    @coroutine
    def _rest(self, running: Any, variables: contextvars.Context, waited: Any) -> Generator[Any, Any, Any]:
        """Everything after the first step of a coroutine, in its own context variables."""
        while True:
            sent = thrown = None
            try:
                sent = yield waited
            except GeneratorExit:
                variables.run(running.close)
                raise
            except BaseException as error:  # whatever it is, the coroutine gets it
                if self._reported and isinstance(error, asyncio.CancelledError):
                    # It was abandoned because it swallows these: once more would keep the program from ending.
                    with suppress(RuntimeError):
                        variables.run(running.close)
                    raise
                thrown = error
            try:
                waited = variables.run(running.send, sent) if thrown is None else variables.run(running.throw, thrown)
            except StopIteration as stop:
                return stop.value
            except GeneratorExit as error:
                raise carry(error) from None

    def wait_in(self, lane: asyncio.Task[None]) -> None:
        """The coroutine waits: the lane is its own from now on, and its time is watched."""
        self.ending = lane
        if isinstance(lane, OwnTask):
            lane.owner = self
        if self.task.timeout_seconds is not None:
            left = self.started + self.task.timeout_seconds - time.monotonic()
            self._timer = self._runner.loop.call_later(max(0.0, left), self._overtime_here)

    def _start(self) -> None:
        """Nothing to do yet: a lane takes the first step."""

    async def _ask_who_cancelled(self) -> None:
        """A program that ends cancels all its asyncio tasks, this one and the worker's: then the worker stops, and the
        attempt with it.  A coroutine that has cancelled its own task has failed."""
        lane = asyncio.current_task()
        if lane is not None and lane.cancelling():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # Until the worker knows.
            self.released |= self._runner.is_stopping()

    def _call(self) -> Any:
        """The coroutine, not begun yet."""
        definition, function, hooks = self._definition, self._definition.function, self._runner.hooks
        args, kwargs = definition.call_with(self.task.kwargs, self)
        make_current(self)
        awaited = (wrap_async(function, hooks, self.context) if hooks else function)(*args, **kwargs)
        return awaited if type(awaited) is CoroutineType else _await(awaited)


class Lanes:
    """Starts lanes while there are coroutines in hand that may begin."""

    def __init__(
        self,
        runner: Runner,
        *,
        take: Callable[[], tuple[ClaimedTask, Definition] | None],
        waits: Callable[[CoroutineAttempt], None],
        ended: Callable[[Completed], None],
        left: Callable[[], None],
        table: RunningTable | None,
    ) -> None:
        """`take` gives the next coroutine that may begin; `waits` hears of each that goes on, `ended` of the others,
        and `left` of a lane's end."""
        self._runner = runner
        self._take = take
        self._waits = waits
        self._ended = ended
        self._left = left
        self._table = table
        self.lane: asyncio.Task[None] | None = None
        """The one that takes from the hand now."""

    def go(self) -> None:
        """See to it that a lane takes from the hand."""
        if self.lane is None:
            self.lane = own_task(self._run())

    def run_alone(self, execution: CoroutineAttempt) -> None:
        """Begin one coroutine in a lane of its own, which takes nothing else."""
        execution.ending = own_task(self._run_one(execution), owner=execution)

    async def _run(self) -> None:
        lane = asyncio.current_task()
        assert lane is not None
        execution: CoroutineAttempt | None = None
        try:
            execution = await self._take_steps(lane)
        finally:
            # Also when a coroutine has cancelled the lane: another one must take over.
            self.lane = None
            if execution is None:
                self._left()
        if execution is None:
            return
        execution.wait_in(lane)
        self._waits(execution)
        await execution.go_on()

    async def _take_steps(self, lane: asyncio.Task[None]) -> CoroutineAttempt | None:
        """Begin one after the other; the first that waits, or None when this lane begins no other."""
        ends: Completed = []
        try:
            slice_end = time.monotonic() + SLICE_SECONDS
            # A coroutine may cancel the task it finds itself in: the next one must not suffer for that.
            while not lane.cancelling() and (taken := self._take()) is not None:
                execution = CoroutineAttempt(self._runner, *taken)
                ended = self._step(execution)
                if ended is WAITS:
                    return execution
                if isinstance(ended, Completion):
                    ends.append((execution.task, ended))
                    if len(ends) < SLICE_TASKS and ended.ended < slice_end:
                        continue
                else:
                    execution.tell(ended)
                ends = self._tell(ends)
                await asyncio.sleep(0)
                slice_end = time.monotonic() + SLICE_SECONDS
        finally:
            self._tell(ends)
        return None

    def _step(self, execution: CoroutineAttempt) -> Ended | Waits:
        if self._table is None:
            return execution.first_step()
        # Should the process die in this step, its supervisor finds who is to blame.
        self._table.begin(execution.task.seq)
        ended = execution.first_step()
        if ended is not WAITS:
            self._table.end(execution.task.seq)
        return ended

    def _tell(self, ends: Completed) -> Completed:
        if ends:
            self._ended(ends)
        return []

    async def _run_one(self, execution: CoroutineAttempt) -> None:
        lane = asyncio.current_task()
        assert lane is not None
        ended = self._step(execution)
        if ended is WAITS:
            execution.wait_in(lane)
            await execution.go_on()
        else:
            execution.tell(ended)


async def _await(awaited: Any) -> Any:
    return await awaited
