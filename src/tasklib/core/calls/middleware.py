"""Hooks around every execution, for tracing, metrics and context.  They cost nothing when there are none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from tasklib.core.calls.base_exceptions import is_interrupt
from tasklib.core.calls.context import StepContext, TaskContext
from tasklib.core.calls.signals import Restart
from tasklib.core.texts.signal_text import for_signals, to_log

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

    Examples:
        >>> class Timed(Middleware):
        ...     def before(self, ctx: TaskContext) -> None:
        ...         ctx.scratch["started"] = 0
        ...     def after(self, ctx: TaskContext, result: object) -> None:
        ...         print(ctx.task.name, "took from", ctx.scratch["started"])
        >>> queue.add_middleware(Timed())
        >>> task_id = add.submit(1)
        >>> queue.process_batch()
        add took from 0
        1
    """

    def before(self, ctx: TaskContext) -> None:
        """The function is about to be called.

        Examples:
            >>> class Refusing(Middleware):
            ...     def before(self, ctx: TaskContext) -> None:
            ...         raise Abort("not today")
            >>> queue.add_middleware(Refusing())
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            1
            >>> queue.wait(task_id).state.value
            'failed'
        """

    def after(self, ctx: TaskContext, result: Any) -> None:
        """The function has returned.

        Examples:
            >>> class Printing(Middleware):
            ...     def after(self, ctx: TaskContext, result: object) -> None:
            ...         print(ctx.task.name, "returned", result)
            >>> queue.add_middleware(Printing())
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            add returned 2
            1
        """

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """The function has raised, or was cancelled.

        Examples:
            >>> class Printing(Middleware):
            ...     def failed(self, ctx: TaskContext, error: BaseException) -> None:
            ...         print(ctx.task.name, "raised", error)
            >>> queue.add_middleware(Printing())
            >>> task_id = divide.submit(1, 0)
            >>> queue.process_batch()
            divide raised division by zero
            1
        """

    def step(self, ctx: StepContext) -> AbstractContextManager[Any]:
        """A block in which a step of a workflow runs, `ctx.step_key`; what is recorded already runs in none.

        It must not wait, also around a step that is a coroutine function.

        Examples:
            >>> from contextlib import contextmanager
            >>> class Named(Middleware):
            ...     @contextmanager
            ...     def step(self, ctx):
            ...         print("step", ctx.step_key)
            ...         yield
            >>> queue.add_middleware(Named())
        """
        return nullcontext()

    async def abefore(self, ctx: TaskContext) -> None:
        """As `before`, awaited, around an `async def`."""
        self.before(ctx)

    async def aafter(self, ctx: TaskContext, result: Any) -> None:
        """As `after`, awaited, around an `async def`."""
        self.after(ctx, result)

    async def afailed(self, ctx: TaskContext, error: BaseException) -> None:
        """As `failed`, awaited, around an `async def`."""
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


def around_step(hooks: Sequence[Middleware], ctx: StepContext) -> AbstractContextManager[Any]:
    """The blocks of all hooks around one step: that of the first one added is the outermost."""
    blocks = [hook.step for hook in hooks if type(hook).step is not Middleware.step]
    if not blocks:
        return nullcontext()
    stack = ExitStack()
    try:
        for block in blocks:
            stack.enter_context(block(ctx))
    except BaseException:
        stack.close()
        raise
    return stack


def call_error_hooks(hooks: Sequence[ErrorHook], ctx: TaskContext, error: BaseException) -> None:
    """Call every error hook with what may leave the process; one that fails itself is logged and changes nothing.

    A restart is no error.
    """
    for hook in () if isinstance(error, Restart) else hooks:
        try:
            hook(ctx, for_signals(error))
        except BaseException as broken:
            if is_interrupt(broken):
                raise
            log.exception("the error hook %r failed", hook, exc_info=to_log(broken))


def call_end_hooks(hooks: Sequence[EndHook], ids: Sequence[str]) -> None:
    """Call every end hook with these ids, if there are any; one that fails is logged and changes nothing."""
    for hook in hooks if ids else ():
        try:
            hook(ids)
        except BaseException as broken:
            if is_interrupt(broken):
                raise
            log.exception("the end hook %r failed", hook, exc_info=to_log(broken))


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
        log.exception("%s.failed raised", type(hook).__name__, exc_info=to_log(broken))
