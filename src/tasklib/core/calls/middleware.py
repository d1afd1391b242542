"""Hooks around every execution, for tracing, metrics and context.  They cost nothing when there are none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tasklib.core.calls.base_exceptions import is_interrupt
from tasklib.core.calls.context import TaskContext

log = logging.getLogger("tasklib.worker")

ErrorHook = Callable[[TaskContext, BaseException], object]


class Middleware:
    """Override what you need; the methods run where the task's function runs, in its thread or on its event loop.

    An exception raised by `before` ends the attempt as if the function had raised it.
    """

    def before(self, ctx: TaskContext) -> None:
        """The function is about to be called."""

    def after(self, ctx: TaskContext, result: Any) -> None:
        """The function has returned."""

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """The function has raised, or was cancelled."""


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
            _enter(hooks, entered, ctx)
            result = await function(*args, **kwargs)
        except BaseException as error:
            _failed(entered, ctx, error)
            raise
        _after(entered, ctx, result)
        return result

    return call


def call_error_hooks(hooks: Sequence[ErrorHook], ctx: TaskContext, error: BaseException) -> None:
    """Call every error hook; one that fails itself is logged and changes nothing."""
    for hook in hooks:
        try:
            hook(ctx, error)
        except BaseException as broken:
            if is_interrupt(broken):
                raise
            log.exception("the error hook %r failed", hook)


def _enter(hooks: Sequence[Middleware], entered: list[Middleware], ctx: TaskContext) -> None:
    for each in hooks:
        each.before(ctx)
        entered.append(each)


def _after(entered: Sequence[Middleware], ctx: TaskContext, result: Any) -> None:
    for each in reversed(entered):
        each.after(ctx, result)


def _failed(entered: Sequence[Middleware], ctx: TaskContext, error: BaseException) -> None:
    for each in reversed(entered):
        try:
            each.failed(ctx, error)
        except BaseException as broken:
            if is_interrupt(broken):
                raise
            log.exception("%s.failed raised", type(each).__name__)
