"""Coroutines on the worker's event loop, many started in one asyncio task: one that ends at once needs none of its own.

A batch starts one coroutine after the other and runs each until it awaits something or ends.  The first that awaits
takes over the batch's asyncio task as its own (its context variables were its own from the start), and a new batch
continues with the rest.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Generator
from contextlib import suppress
from types import CoroutineType, coroutine
from typing import Any, NamedTuple

from tasklib.core.calls.base_exceptions import carry
from tasklib.core.calls.current import make_current
from tasklib.core.calls.middleware import wrap_async
from tasklib.core.calls.own_tasks import OwnTask, own_task
from tasklib.core.outcome import Completion
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution import copies
from tasklib.worker.execution.attempt import Attempt, AttemptRunner, Executor
from tasklib.worker.execution.call import Caller
from tasklib.worker.execution.running_attempt import AttemptSettings, Ended, StopReason

SLICE_SECONDS = 0.005
"""How long a batch runs before it yields to the event loop."""
SLICE_TASKS = 150
"""How many outcomes it collects at most before it passes them on: the database records them while the batch goes on."""


class Waiting(NamedTuple):
    """A coroutine after its first step, and what it waits for."""

    attempt: Attempt
    coroutine: Any
    variables: contextvars.Context
    awaited: Any


class Coroutines(Executor):
    """Runs coroutine functions."""

    name = "coroutine"
    stops_surely = True
    shares_process = True

    def __init__(self, caller: Caller, settings: AttemptSettings, control: WorkerControl) -> None:
        self._caller = caller
        self._middleware = settings.middleware
        self._monotonic = settings.timing.monotonic
        self._control = control
        self._batch: asyncio.Task[None] | None = None
        """The batch that takes attempts now."""

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Every coroutine function."""
        return definition.is_async

    def start(self, runner: AttemptRunner) -> None:
        """Ensure that a batch runs while there are attempts for it.  Without any, none is started: it would end and be
        replaced for as long as a held task waits for a slot."""
        if self._batch is None and runner.has_next(self):
            self._batch = own_task(self._run_batch(runner))

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Cancel it; a coroutine that swallows the cancellation is abandoned."""
        if attempt.work is not None:
            attempt.work.cancel()
        attempt.abandon_later()

    async def close(self) -> None:
        """Nothing to release."""

    async def _run_batch(self, runner: AttemptRunner) -> None:
        batch = asyncio.current_task()
        assert batch is not None
        waiting: Waiting | None = None
        try:
            waiting = await self._begin_many(batch, runner)
        finally:
            # Also when a coroutine has cancelled the batch's asyncio task: another batch must take over.
            self._batch = None
            if waiting is None:
                runner.use_free_slots()
        if waiting is not None:
            # From now on this asyncio task belongs to the coroutine, and its timeout applies.
            attempt = waiting.attempt
            attempt.work = batch
            if isinstance(batch, OwnTask):
                batch.owner = attempt
            attempt.limit_time()
            runner.hold_slot(attempt)
            runner.use_free_slots()
            await self._go_on(waiting)

    async def _begin_many(self, batch: asyncio.Task[None], runner: AttemptRunner) -> Waiting | None:
        """Start attempts one after the other; returns the first that awaits something, or None when there are no
        more."""
        ends: list[tuple[Attempt, Completion]] = []
        try:
            slice_end = self._monotonic() + SLICE_SECONDS
            # A coroutine may cancel the task it finds itself in: the next one must not suffer for that.
            while not batch.cancelling() and (attempt := runner.take(self)) is not None:
                runner.note_running(attempt)
                ended = self._first_step(attempt)
                if isinstance(ended, Waiting):
                    return ended
                if isinstance(ended, Completion):
                    attempt.is_ended = True
                    ends.append((attempt, ended))
                    if len(ends) < SLICE_TASKS and ended.ended < slice_end:
                        continue
                else:
                    attempt.end(ended)
                if ends:
                    runner.completed(ends)
                    ends = []
                await asyncio.sleep(0)
                slice_end = self._monotonic() + SLICE_SECONDS
        finally:
            if ends:
                runner.completed(ends)
        return None

    def _first_step(self, attempt: Attempt) -> Ended | Waiting:
        """Run the function until it first awaits something or ends."""
        variables = contextvars.copy_context()
        try:
            running = variables.run(self._call, attempt)
        except BaseException as error:  # noqa: BLE001  the converters of the user's types run here
            return attempt.raised(error)
        try:
            before = copies.forks
            try:
                awaited = variables.run(running.send, None)
            finally:
                if copies.forks != before:
                    copies.end_copy()
        except StopIteration as stop:
            return attempt.returned(stop.value)
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            return attempt.raised(error)
        return Waiting(attempt, running, variables, awaited)

    def _call(self, attempt: Attempt) -> Any:
        """The coroutine, not started yet."""
        definition = attempt.definition
        if definition.options.transactional:
            return self._caller.prepare(definition, attempt.task, attempt, attempt.refuse_late)()
        args, kwargs = definition.call_with(attempt.task.kwargs, attempt)
        make_current(attempt)
        function = definition.function
        if definition.dependencies:
            function = self._caller.function_of(definition, attempt)
        if self._middleware:
            function = wrap_async(function, self._middleware, attempt.context)
        awaited = function(*args, **kwargs)
        return awaited if type(awaited) is CoroutineType else _await(awaited)

    async def _go_on(self, waiting: Waiting) -> None:
        """Run the rest in this asyncio task, and end the attempt."""
        attempt = waiting.attempt
        try:
            result = await _rest(waiting)
        except GeneratorExit:
            raise  # The event loop is gone; a GeneratorExit that the function raised itself arrives as Carried.
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            if isinstance(error, asyncio.CancelledError):
                await self._ask_who_cancelled(attempt)
            attempt.end(attempt.raised(error))
        else:
            attempt.end(attempt.returned(result))

    async def _ask_who_cancelled(self, attempt: Attempt) -> None:
        """Decide what a cancellation means that the worker did not ask for.  A program that ends cancels all its
        asyncio tasks, the worker's too: then the attempt stops with the worker.  A coroutine that cancelled its own
        task has failed."""
        batch = asyncio.current_task()
        if batch is not None and batch.cancelling():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # Until the worker has noticed.
            if attempt.stop_reason is None and self._control.is_stopping:
                attempt.stop_reason = StopReason.RELEASED


@coroutine
def _rest(waiting: Waiting) -> Generator[Any, Any, Any]:
    """Everything after the first step of a coroutine, in its own context variables."""
    attempt, running, variables, awaited = waiting
    while True:
        sent: Any = None
        thrown: BaseException | None = None
        try:
            sent = yield awaited
        except GeneratorExit:
            variables.run(running.close)
            raise
        except BaseException as error:  # whatever it is, the coroutine gets it
            if attempt.is_ended and isinstance(error, asyncio.CancelledError):
                # It was abandoned because it swallows cancellations: another one would keep the program from ending.
                with suppress(RuntimeError):
                    variables.run(running.close)
                raise
            thrown = error
        try:
            before = copies.forks
            try:
                awaited = variables.run(running.send, sent) if thrown is None else variables.run(running.throw, thrown)
            finally:
                if copies.forks != before:
                    copies.end_copy()
        except StopIteration as stop:
            return stop.value
        except GeneratorExit as error:
            raise carry(error) from None


async def _await(awaited: Any) -> Any:
    return await awaited
