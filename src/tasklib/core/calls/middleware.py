"""Hooks around every execution, for tracing, metrics and context.  They cost nothing when there are none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tasklib.core.calls.base_exceptions import is_interrupt
from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.steps import Restart

log = logging.getLogger("tasklib.worker")

ErrorHook = Callable[[TaskContext, BaseException], object]
EndHook = Callable[[Sequence[str]], object]
"""Takes the ids of tasks that have ended for good, on the worker's event loop, which it must not block."""


class Middleware:
    """Override what you need; the methods run where the task's function runs, in its thread or on its event loop.

    An exception raised by `before` ends the attempt as if the function had raised it.

    Around a coroutine function the methods that begin with `a` are awaited instead; as they stand they call the plain
    ones.  Override them where a hook has to wait for something, which would block the event loop:

        class Audited(Middleware):
            async def abefore(self, ctx):
                await audit_log.append(ctx.task.id)
    """

    def before(self, ctx: TaskContext) -> None:
        """The function is about to be called."""

    def after(self, ctx: TaskContext, result: Any) -> None:
        """The function has returned."""

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """The function has raised, or was cancelled."""

    async def abefore(self, ctx: TaskContext) -> None:
        """The coroutine function is about to be called."""
        self.before(ctx)

    async def aafter(self, ctx: TaskContext, result: Any) -> None:
        """The coroutine function has returned."""
        self.after(ctx, result)

    async def afailed(self, ctx: TaskContext, error: BaseException) -> None:
        """The coroutine function has raised, or was cancelled."""
        self.failed(ctx, error)


def wrap(function: Callable[..., Any], hooks: Sequence[Middleware], ctx: TaskContext) -> Callable[..., Any]:
    """The function with the hooks around it: the first one added is the outermost."""

    def call(*args: Any, **kwargs: Any) -> Any:
        entered: list[Middleware] = []
        try:
            _enter(hooks, entered, ctx)
            result = function(*args, **kwargs)
        except BaseException as error:
            _failed(entered, ctx, error)
            raise
        _after(entered, ctx, result)
        return result

    return call


def wrap_async(function: Callable[..., Any], hooks: Sequence[Middleware], ctx: TaskContext) -> Callable[..., Any]:
    """The same for a coroutine function."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        entered: list[Middleware] = []
        try:
            for each in hooks:
                await each.abefore(ctx)
                entered.append(each)
            result = await function(*args, **kwargs)
        except GeneratorExit as error:  # The coroutine is being closed, and may wait for nothing any more.
            _failed(entered, ctx, error)
            raise
        except BaseException as error:
            for each in reversed(entered):
                with _logged(each):
                    await each.afailed(ctx, error)
            raise
        for each in reversed(entered):
            await each.aafter(ctx, result)
        return result

    return call


def call_error_hooks(hooks: Sequence[ErrorHook], ctx: TaskContext, error: BaseException) -> None:
    """Call every error hook; one that fails itself is logged and changes nothing.  A restart is no error."""
    for hook in () if isinstance(error, Restart) else hooks:
        try:
            hook(ctx, error)
        except BaseException as broken:
            if is_interrupt(broken):
                raise
            log.exception("the error hook %r failed", hook)


def call_end_hooks(hooks: Sequence[EndHook], ids: Sequence[str]) -> None:
    """Call every end hook with these ids, if there are any; one that fails is logged and changes nothing."""
    for hook in hooks if ids else ():
        try:
            hook(ids)
        except BaseException as broken:
            if is_interrupt(broken):
                raise
            log.exception("the end hook %r failed", hook)


def _enter(hooks: Sequence[Middleware], entered: list[Middleware], ctx: TaskContext) -> None:
    for each in hooks:
        each.before(ctx)
        entered.append(each)


def _after(entered: Sequence[Middleware], ctx: TaskContext, result: Any) -> None:
    for each in reversed(entered):
        each.after(ctx, result)


def _failed(entered: Sequence[Middleware], ctx: TaskContext, error: BaseException) -> None:
    for each in reversed(entered):
        with _logged(each):
            each.failed(ctx, error)


@contextmanager
def _logged(hook: Middleware) -> Generator[None]:
    """A hook that fails after the function has failed is logged, and the function's own error stays the outcome."""
    try:
        yield
    except BaseException as broken:
        if is_interrupt(broken):
            raise
        log.exception("%s.failed raised", type(hook).__name__)
