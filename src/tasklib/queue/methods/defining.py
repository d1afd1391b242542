"""What a program registers with its queue: tasks, handlers, and hooks around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from tasklib.core.calls.middleware import EndHook, ErrorHook, Middleware
from tasklib.core.codec import shown
from tasklib.definition import Definition, Registry, TaskKeywords, TaskOptions, default_name, shows_options
from tasklib.errors import ConfigurationError
from tasklib.queue.base import HeaderSource, Hook, QueueBase
from tasklib.submission import ContextDecorator, ContextTaskFunction, TaskFunction

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

P = ParamSpec("P")
R = TypeVar("R")


class DefinesTasks(QueueBase):
    """Tasks, handlers by name, and hooks."""

    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...
    @overload
    def task(
        self, /, *, context: Literal[True], name: str | None = None, **options: Unpack[TaskKeywords]
    ) -> ContextDecorator: ...
    @overload
    def task(
        self, /, *, name: str | None = None, context: Literal[False] = False, **options: Unpack[TaskKeywords]
    ) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
    @shows_options(TaskOptions)
    def task(self, function: Any = None, /, *, name: str | None = None, context: bool = False, **options: Any) -> Any:
        """Make a function a task: `@queue.task` or `@queue.task(max_retries=5, timeout_seconds=30)`.

        With `context=True` its first parameter is the TaskContext, which callers leave out.
        """

        def decorate(plain_function: Callable[..., R]) -> TaskFunction[..., R]:
            return define(self.registry, lambda: cast("TaskQueue", self), plain_function, name, options, context)

        return decorate if function is None else decorate(function)

    @shows_options(TaskOptions)
    def register_handler(
        self, name: str, handler: Callable[..., Any], *, payload: Any = None, **options: Unpack[TaskKeywords]
    ) -> None:
        """Handle tasks submitted by name; the handler takes the payload, or the Task if its parameter says so."""
        given = TaskOptions.for_task(name, **options)
        self.registry.add(Definition.for_handler(name, handler, given, payload))

    def unregister_handler(self, name: str) -> None:
        """Stop handling tasks of a name here; they stay pending for others."""
        self.registry.remove(name)

    def on_startup(self, hook: Hook) -> Hook:
        """Run a function when a worker starts; it may take the worker's state and put resources on it."""
        self.startup_hooks.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Run a function when a worker stops, last registered first."""
        self.shutdown_hooks.append(hook)
        return hook

    def add_middleware(self, middleware: Middleware) -> None:
        """Put hooks around every execution of this queue's tasks; the first one added is the outermost."""
        self.middleware.append(middleware)

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """Call a function with the context and the exception of every attempt that fails, for an error reporter."""
        self.error_hooks.append(hook)
        return hook

    def on_end(self, hook: EndHook) -> EndHook:
        """Call a function with the ids of tasks that a worker here has brought to their end, once that is recorded.

        It is called on the worker's event loop, with many ids at once where many tasks end: hand them on, to a thread
        or an asyncio task, and return.  A worker that dies in between leaves out the call, as after a lost reply.
        """
        self.end_hooks.append(hook)
        return hook

    def add_headers(self, source: HeaderSource) -> HeaderSource:
        """Ask a function at every submission for headers to carry along: tenant, request id, trace."""
        self.header_sources.append(source)
        return source


def define(
    registry: Registry,
    queue: Callable[[], TaskQueue],
    function: Callable[..., R],
    name: str | None,
    options: Mapping[str, Any],
    context: bool = False,
) -> TaskFunction[..., R]:
    """Register a function as a task and give back the object that replaces it."""
    named = name or default_name(function)
    if not isinstance(context, bool):
        raise ConfigurationError(f"task {named!r}: context must be True or False, got {shown(context)}")
    checked = TaskOptions.for_task(named, **options)
    definition = Definition.for_function(function, name=named, options=checked, context=context)
    registry.add(definition)
    return (ContextTaskFunction if context else TaskFunction)(queue, definition, function)
