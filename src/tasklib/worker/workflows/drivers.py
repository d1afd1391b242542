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
from tasklib.worker.workflows.effects import Call, Effect, Logic, Request, Suspend, T, Transact, WaitInSlot
from tasklib.worker.workflows.engine import Engine
from tasklib.worker.workflows.journal import StepJournal
from tasklib.worker.workflows.step_threads import call_within, start_in_thread
from tasklib.worker.workflows.transactions import Around, limited, transact_awaiting, transact_blocking

ROUNDS: Final = 8
"""Turns of the event loop in which another branch of the function may start a step before the function is suspended."""
START_OVER: Final = Suspend("sleep", "", 0.0)
"""The ending of an attempt that starts over at once."""


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """What all workflows of a worker share."""

    timing: Timing
    middleware: Sequence[Middleware] = ()
    restarts: bool = False
    """Whether the function starts over after every recorded step: for tests that look for code that is not
    deterministic."""


class _Workflow:
    """What both drivers share: each call of the context creates a generator of the logic, which the driver runs."""

    def __init__(self, engine: Engine, journal: StepJournal, storage: HasDatabase, settings: WorkflowSettings) -> None:
        self.engine = engine
        engine.storage = storage
        self._journal = journal
        self._storage = storage
        self._timing = settings.timing
        self._around = partial(around_step, settings.middleware)
        self._restarts = settings.restarts

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
            isinstance(effect, Request) and effect.name == "record" and effect.params["state"] != "open"
        )


class AwaitingWorkflow(_Workflow):
    """For coroutines: calls return awaitables, and the attempt is suspended once every branch waits."""

    def __init__(self, engine: Engine, journal: StepJournal, storage: HasDatabase, settings: WorkflowSettings) -> None:
        super().__init__(engine, journal, storage, settings)
        self._active = 0
        """How many calls are being awaited that are not suspended."""
        self._suspended: list[tuple[Suspend, asyncio.Future[None]]] = []
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
                        await self._suspend(START_OVER)
                    effect = logic.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            self._active -= 1
            self._suspend_when_all_wait()

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return await self._journal.ask(self.engine.task, effect)
            case Call():
                return await self._call(effect)
            case Transact():
                return await self._transact(effect)
            case WaitInSlot(seconds):
                return await self._timing.sleep(seconds)
            case Suspend():
                return await self._suspend(effect)
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

    async def _suspend(self, wait: Suspend) -> None:
        if self.engine.suspension is not None:
            raise Suspended
        waiting = asyncio.get_running_loop().create_future()
        entry = (wait, waiting)
        self._suspended.append(entry)
        self._active -= 1
        self._suspend_when_all_wait()
        try:
            await waiting
        except Suspended:
            if (task := asyncio.current_task()) is not None:
                task.add_done_callback(_retrieve)
            raise
        finally:
            self._active += 1
            self._suspended.remove(entry)

    def _suspend_when_all_wait(self) -> None:
        """Suspend the function once all its branches wait; for some turns of the loop another one may still start a
        step."""
        if not self._active and self._suspended and self.engine.suspension is None:
            asyncio.get_running_loop().call_soon(self._suspend_after_turns, ROUNDS)

    def _suspend_after_turns(self, rounds: int) -> None:
        if self._active or not self._suspended or self.engine.suspension is not None:
            return
        if rounds:
            asyncio.get_running_loop().call_soon(self._suspend_after_turns, rounds - 1)
            return
        self.engine.suspend([wait for wait, _ in self._suspended])
        for _, waiting in self._suspended:
            if not waiting.done():
                waiting.set_exception(Suspended())


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging that a suspended branch ended in an exception that the function never looked at."""
    if not task.cancelled():
        task.exception()


class BlockingWorkflow(_Workflow):
    """For plain functions, each in a thread: calls block."""

    def __init__(self, engine: Engine, journal: StepJournal, storage: HasDatabase, settings: WorkflowSettings) -> None:
        super().__init__(engine, journal, storage, settings)
        self._changed = threading.Condition()
        self._active = 0
        self._suspended: list[Suspend] = []

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
                        self._suspend(START_OVER)
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
            case Request():
                return self._journal.ask_blocking(self.engine.task, effect)
            case Call():
                return self._call(effect)
            case Transact():
                return self._transact(effect)
            case WaitInSlot(seconds):
                return self.engine.context.wait_cancelled(seconds)
            case Suspend():
                return self._suspend(effect)
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

    def _suspend(self, wait: Suspend) -> None:
        with self._changed:
            self._suspended.append(wait)
            self._active -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._active or self.engine.suspension is not None)
            self._active += 1
            if self.engine.suspension is None:
                self.engine.suspend(self._suspended)
                self._changed.notify_all()
        raise Suspended


def _call_in(context: StepContext, call: Call, around: Around) -> Any:
    """Call a function in the step's context; a coroutine function in an event loop of its own."""
    with activate(context), around(context):
        if is_async(call.function):
            return asyncio.run(call.function(*call.args, **call.kwargs))
        return call.function(*call.args, **call.kwargs)


def workflow_for(
    engine: Engine, journal: StepJournal, storage: HasDatabase, settings: WorkflowSettings, *, awaits: bool
) -> AwaitingWorkflow | BlockingWorkflow:
    """The workflow of an attempt: one decision for the worker and its child processes."""
    return (AwaitingWorkflow if awaits else BlockingWorkflow)(engine, journal, storage, settings)
