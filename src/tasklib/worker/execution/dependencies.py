"""The dependencies of one attempt: each called before the function, and cleaned up once the function has ended.

Clean-up comes before the attempt's end is recorded, and one that fails is the attempt's failure: where a dependency
commits a session after its `yield`, a task whose commit failed must not be recorded as completed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, TypeAlias

from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import HasContext
from tasklib.core.time.timing import Timing
from tasklib.definition import Definition
from tasklib.definition.dependencies import Dependency, Kind
from tasklib.definition.tasks import fill

RunAsync: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end and returns its value, blocking the caller."""
Exit: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


def with_dependencies(
    definition: Definition, context: TaskContext | HasContext, run_async: RunAsync
) -> Callable[..., Any]:
    """The blocking function with its dependencies; those that must be awaited run on the worker's event loop."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raised: BaseException | None = None
        result: Any = None
        with ExitStack() as stack:
            solving = _Solving(context, stack, run_async)
            try:
                values = {name: solving.value_of(each) for name, each in definition.dependencies}
                result = definition.function(*args, **kwargs, **values)
            except BaseException as error:
                raised = error
                raise
        if raised is not None:
            raise raised  # A dependency has swallowed it: the attempt has failed all the same.
        return result

    return call


def with_dependencies_async(
    definition: Definition, context: TaskContext | HasContext, timing: Timing
) -> Callable[..., Any]:
    """The coroutine function with its dependencies; those that may block run in a thread."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        raised: BaseException | None = None
        result: Any = None
        async with AsyncExitStack() as stack:
            solving = _AsyncSolving(context, stack, timing)
            try:
                values = {name: await solving.value_of(each) for name, each in definition.dependencies}
                result = await definition.function(*args, **kwargs, **values)
            except BaseException as error:
                raised = error
                raise
        if raised is not None:
            raise raised  # A dependency has swallowed it: the attempt has failed all the same.
        return result

    return call


def run_on_this_loop() -> RunAsync:
    """A function with which a thread runs a coroutine on this event loop, with the thread's context variables."""
    loop = asyncio.get_running_loop()
    return lambda awaited: asyncio.run_coroutine_threadsafe(awaited, loop).result()


class _Solving:
    """Calls the dependencies of one attempt, in a thread, and holds their values."""

    def __init__(self, context: TaskContext | HasContext, stack: ExitStack, run_async: RunAsync) -> None:
        self._context = context
        self._stack = stack
        self._run_async = run_async
        self._found: dict[int, Any] = {}

    def value_of(self, dependency: Dependency) -> Any:
        if dependency.is_shared and id(dependency.call) in self._found:
            return self._found[id(dependency.call)]
        given = {
            name: self.value_of(source) if isinstance(source, Dependency) else fill(source, self._context)
            for name, source in dependency.parameters
        }
        value = self._call(dependency, given)
        if dependency.is_shared:
            self._found[id(dependency.call)] = value
        return value

    def _call(self, dependency: Dependency, given: dict[str, Any]) -> Any:
        match dependency.kind:
            case Kind.VALUE:
                return dependency.call(**given)
            case Kind.COROUTINE:
                return self._run_async(_awaited(dependency.call, given))
            case Kind.GENERATOR:
                return self._stack.enter_context(contextmanager(dependency.call)(**given))
            case Kind.ASYNC_GENERATOR:
                manager = asynccontextmanager(dependency.call)(**given)
                return self._stack.enter_context(_OnLoop(manager, self._run_async))


class _AsyncSolving:
    """Calls the dependencies of one attempt, on the event loop, and holds their values."""

    def __init__(self, context: TaskContext | HasContext, stack: AsyncExitStack, timing: Timing) -> None:
        self._context = context
        self._stack = stack
        self._timing = timing
        self._found: dict[int, Any] = {}

    async def value_of(self, dependency: Dependency) -> Any:
        if dependency.is_shared and id(dependency.call) in self._found:
            return self._found[id(dependency.call)]
        given = {
            name: await self.value_of(source) if isinstance(source, Dependency) else fill(source, self._context)
            for name, source in dependency.parameters
        }
        value = await self._call(dependency, given)
        if dependency.is_shared:
            self._found[id(dependency.call)] = value
        return value

    async def _call(self, dependency: Dependency, given: dict[str, Any]) -> Any:
        match dependency.kind:
            case Kind.VALUE:
                return await _in_thread(lambda: dependency.call(**given), self._timing)
            case Kind.COROUTINE:
                return await dependency.call(**given)
            case Kind.GENERATOR:
                manager = contextmanager(dependency.call)(**given)
                return await self._stack.enter_async_context(_InThread(manager, self._timing))
            case Kind.ASYNC_GENERATOR:
                return await self._stack.enter_async_context(asynccontextmanager(dependency.call)(**given))


class _OnLoop(AbstractContextManager[Any]):
    """An asynchronous context manager, used from a thread."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], run_async: RunAsync) -> None:
        self._manager = manager
        self._run_async = run_async

    def __enter__(self) -> Any:
        return self._run_async(_awaited(self._manager.__aenter__, {}))

    def __exit__(self, *how: Any) -> bool | None:
        swallowed: bool | None = self._run_async(_awaited(lambda: self._manager.__aexit__(*how), {}))
        return swallowed


class _InThread(AbstractAsyncContextManager[Any]):
    """A blocking context manager, used from the event loop."""

    def __init__(self, manager: AbstractContextManager[Any], timing: Timing) -> None:
        self._manager = manager
        self._timing = timing

    async def __aenter__(self) -> Any:
        entering = _thread(self._manager.__enter__, self._timing)
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError as error:
            # The thread goes on: what it opens is closed again before the cancellation is passed on.
            if await _has_ended_well(entering):
                how: Exit = (type(error), error, error.__traceback__)
                await _in_thread(lambda: self._manager.__exit__(*how), self._timing)
            raise

    async def __aexit__(self, *how: Any) -> bool | None:
        swallowed: bool | None = await _in_thread(lambda: self._manager.__exit__(*how), self._timing)
        return swallowed


async def _awaited(call: Callable[..., Any], given: dict[str, Any]) -> Any:
    return await call(**given)


async def _in_thread(call: Callable[[], Any], timing: Timing) -> Any:
    return await _thread(call, timing)


def _thread(call: Callable[[], Any], timing: Timing) -> asyncio.Future[Any]:
    """The call, made in a thread with a copy of the context variables here."""
    running = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, call)
    timing.expect(running)
    return running


async def _has_ended_well(work: asyncio.Future[Any]) -> bool:
    await asyncio.wait([work])
    return not work.cancelled() and work.exception() is None
