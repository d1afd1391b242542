"""Drivers that carry out the effects of a workflow's logic: awaiting in a coroutine, blocking in a plain function."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, assert_never

from tasklib.core.calls.context import StepContext
from tasklib.core.calls.current import activate, running_attempt
from tasklib.core.calls.middleware import Middleware, around_step
from tasklib.core.calls.signals import Suspended
from tasklib.core.calls.steps import StepOptions
from tasklib.core.time.timing import Timing
from tasklib.definition.functions import is_async
from tasklib.storage.database import HasDatabase
from tasklib.worker.workflows.effects import Ask, Call, Effect, Logic, Park, Rest, T, Transact
from tasklib.worker.workflows.engine import Engine
from tasklib.worker.workflows.journal import StepJournal
from tasklib.worker.workflows.step_threads import call_within, start_in_thread
from tasklib.worker.workflows.transactions import Around, limited, transact_awaiting, transact_blocking

ROUNDS: Final = 8
"""Turns of the event loop in which another branch of the function may start a step before the function is suspended."""
ANEW: Final = Park("sleep", "", 0.0)
"""The ending of an attempt that starts over at once."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all workflows of a worker share."""

    timing: Timing
    middleware: Sequence[Middleware] = ()
    restarts: bool = False
    """Whether the function starts over after every recorded step: for tests that look for code that is not
    deterministic."""


class _Workflow:
    """What both drivers share: each call of the context creates a generator of the logic, which the driver runs."""

    def __init__(self, engine: Engine, journal: StepJournal, storage: HasDatabase, conditions: Conditions) -> None:
        self.engine = engine
        engine.storage = storage
        self._journal = journal
        self._storage = storage
        self._timing = conditions.timing
        self._around = partial(around_step, conditions.middleware)
        self._restarts = conditions.restarts

    def step(self, options: StepOptions, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the function once, and record its result."""
        return self._drive("step", self.engine.step(options, function, args, kwargs))

    def sleep(self, options: StepOptions, seconds: float | timedelta | None, until: datetime | None) -> Any:
        """Wait without a slot."""
        return self._drive("sleep", self.engine.sleep(options, seconds, until))

    def wait(
        self,
        options: StepOptions,
        events: str | Sequence[str],
        type: Any,
        timeout_seconds: float | None,
        ask: str | None,
    ) -> Any:
        """Wait for an event, or for a person's answer."""
        return self._drive("wait", self.engine.wait(options, events, type, timeout_seconds, ask))

    def run(self, options: StepOptions, call: Any, timeout_seconds: float | None) -> Any:
        """Run a task as a child, and wait for its result."""
        return self._drive("run", self.engine.run(options, call, timeout_seconds))

    def map(
        self,
        options: StepOptions,
        task: Any,
        inputs: Iterable[Mapping[str, Any]],
        max_failures: int | None,
        timeout_seconds: float | None,
    ) -> Any:
        """Run a task for each of many inputs as children, and wait for all."""
        return self._drive("map", self.engine.map(options, task, inputs, max_failures, timeout_seconds))

    def spend(self, options: StepOptions, budget: str, cost: float) -> Any:
        """Take tokens from a budget, once there are enough."""
        return self._drive("spend", self.engine.spend(options, budget, cost))

    def close_forgotten(self) -> str | None:
        """The name of a call that was made and never awaited; in a blocking workflow there is none."""
        return None

    def _drive(self, name: str, logic: Logic[T]) -> Any:
        raise NotImplementedError

    def _step_context(self, call: Call) -> StepContext:
        return StepContext(self.engine.context, call.key, part_of=running_attempt())

    def _is_new_record(self, effect: Effect) -> bool:
        """Whether the effect records a step that has ended: with `restarts` the function then starts over."""
        if not self._restarts:
            return False
        return isinstance(effect, Transact) or (
            isinstance(effect, Ask) and effect.name == "record" and effect.params["state"] != "open"
        )


class AwaitingWorkflow(_Workflow):
    """For coroutines: calls return awaitables, and the attempt is suspended once every branch waits."""

    def __init__(self, engine: Engine, journal: StepJournal, storage: HasDatabase, conditions: Conditions) -> None:
        super().__init__(engine, journal, storage, conditions)
        self._active = 0
        """How many calls are being awaited that are not suspended."""
        self._parked: list[tuple[Park, asyncio.Future[None]]] = []
        self._not_begun: dict[Logic[Any], tuple[str, Coroutine[Any, Any, Any]]] = {}

    def close_forgotten(self) -> str | None:
        """The name of a call that was made and never awaited, and so did nothing.  One that was cancelled before it
        started is closed by now.
        """
        calls = [
            each for each in self._not_begun.values() if inspect.getcoroutinestate(each[1]) == inspect.CORO_CREATED
        ]
        for _, call in calls:
            call.close()
        return calls[0][0] if calls else None

    def _drive(self, name: str, logic: Logic[T]) -> Coroutine[Any, Any, T]:
        call = self._driven(logic)
        self._not_begun[logic] = name, call
        return call

    async def _driven(self, logic: Logic[T]) -> T:
        del self._not_begun[logic]
        self._active += 1
        try:
            effect = next(logic)
            while True:
                try:
                    answer = await self._do(effect)
                except BaseException as error:  # noqa: BLE001  the logic decides what it means
                    effect = logic.throw(error)
                else:
                    if self._is_new_record(effect):
                        await self._park(ANEW)
                    effect = logic.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            self._active -= 1
            self._consider()

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case Ask():
                return await self._journal.ask(self.engine.task, effect)
            case Call():
                return await self._call(effect)
            case Transact():
                return await self._transact(effect)
            case Rest(seconds):
                return await self._timing.sleep(seconds)
            case Park():
                return await self._park(effect)
            case _:
                assert_never(effect)

    async def _call(self, call: Call) -> Any:
        context = self._step_context(call)
        async with limited(self._timing, call.timeout_seconds):
            if is_async(call.function):
                with activate(context), self._around(context):
                    return await call.function(*call.args, **call.kwargs)
            return await self._in_thread(lambda: _call_in(context, call, self._around))

    async def _transact(self, effect: Transact) -> None:
        given = self._storage.database, self._step_context(effect.call), effect, self._around, self._timing
        if is_async(effect.call.function):
            await transact_awaiting(*given)
        else:
            await self._in_thread(lambda: transact_blocking(*given))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        done = start_in_thread(call)
        self._timing.expect(done)
        return await done

    async def _park(self, park: Park) -> None:
        if self.engine.suspension is not None:
            raise Suspended
        waiting = asyncio.get_running_loop().create_future()
        entry = (park, waiting)
        self._parked.append(entry)
        self._active -= 1
        self._consider()
        try:
            await waiting
        except Suspended:
            if (task := asyncio.current_task()) is not None:
                task.add_done_callback(_retrieve)
            raise
        finally:
            self._active += 1
            self._parked.remove(entry)

    def _consider(self) -> None:
        """Suspend the function if everything it awaits of the workflow is a wait, after giving other branches some
        turns to start a step."""
        if not self._active and self._parked and self.engine.suspension is None:
            asyncio.get_running_loop().call_soon(self._settle, ROUNDS)

    def _settle(self, rounds: int) -> None:
        if self._active or not self._parked or self.engine.suspension is not None:
            return
        if rounds:
            asyncio.get_running_loop().call_soon(self._settle, rounds - 1)
            return
        self.engine.suspend([park for park, _ in self._parked])
        for _, waiting in self._parked:
            if not waiting.done():
                waiting.set_exception(Suspended())


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging that a suspended branch ended in an exception that the function never looked at."""
    if not task.cancelled():
        task.exception()


class BlockingWorkflow(_Workflow):
    """For plain functions, each in a thread: calls block."""

    def __init__(self, engine: Engine, journal: StepJournal, storage: HasDatabase, conditions: Conditions) -> None:
        super().__init__(engine, journal, storage, conditions)
        self._changed = threading.Condition()
        self._active = 0
        self._parked: list[Park] = []

    def _drive(self, name: str, logic: Logic[T]) -> T:
        with self._changed:
            self._active += 1
        try:
            effect = next(logic)
            while True:
                try:
                    answer = self._do(effect)
                except BaseException as error:  # noqa: BLE001  the logic decides what it means
                    effect = logic.throw(error)
                else:
                    if self._is_new_record(effect):
                        self._park(ANEW)
                    effect = logic.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Ask():
                return self._journal.ask_blocking(self.engine.task, effect)
            case Call():
                return self._call(effect)
            case Transact():
                return self._transact(effect)
            case Rest(seconds):
                return self.engine.context.wait_cancelled(seconds)
            case Park():
                return self._park(effect)
            case _:
                assert_never(effect)

    def _call(self, call: Call) -> Any:
        context = self._step_context(call)
        if call.timeout_seconds is None:
            return _call_in(context, call, self._around)
        return call_within(call.timeout_seconds, lambda: _call_in(context, call, self._around))

    def _transact(self, effect: Transact) -> None:
        given = self._storage.database, self._step_context(effect.call), effect, self._around, self._timing
        if is_async(effect.call.function):
            asyncio.run(transact_awaiting(*given))
        else:
            transact_blocking(*given)

    def _park(self, park: Park) -> None:
        with self._changed:
            self._parked.append(park)
            self._active -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._active or self.engine.suspension is not None)
            self._active += 1
            if self.engine.suspension is None:
                self.engine.suspend(self._parked)
                self._changed.notify_all()
        raise Suspended


def _call_in(context: StepContext, call: Call, around: Around) -> Any:
    """Call a function in the step's context; a coroutine function in an event loop of its own."""
    with activate(context), around(context):
        if is_async(call.function):
            return asyncio.run(call.function(*call.args, **call.kwargs))
        return call.function(*call.args, **call.kwargs)


def workflow_for(
    engine: Engine, journal: StepJournal, storage: HasDatabase, conditions: Conditions, *, awaits: bool
) -> AwaitingWorkflow | BlockingWorkflow:
    """The workflow of an attempt: one decision for the worker and its child processes."""
    return (AwaitingWorkflow if awaits else BlockingWorkflow)(engine, journal, storage, conditions)
