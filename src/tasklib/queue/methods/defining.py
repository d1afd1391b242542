"""What a program registers with its queue: tasks, handlers, and hooks around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from tasklib.core.calls.middleware import EndHook, ErrorHook, Middleware
from tasklib.core.calls.signature import shows_options
from tasklib.core.codec import shown
from tasklib.definition import Definition, Registry, TaskKeywords, TaskOptions, default_name
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

        Examples:
            >>> @queue.task(max_retries=5, timeout_seconds=30, retry_on=(ConnectionError,))
            ... def fetch(url: str) -> int:
            ...     return len(url)
            >>> fetch("https://example.com")  # still a plain function
            19
            >>> task_id = fetch.submit("https://example.com")  # and a task
        """

        def decorate(plain_function: Callable[..., R]) -> TaskFunction[..., R]:
            return define(self.registry, lambda: cast("TaskQueue", self), plain_function, name, options, context)

        return decorate if function is None else decorate(function)

    @shows_options(TaskOptions)
    def register_handler(
        self, name: str, handler: Callable[..., Any], *, payload: Any = None, **options: Unpack[TaskKeywords]
    ) -> None:
        """Handle tasks submitted by name; the handler takes the payload, or the Task if its parameter says so.

        Examples:
            >>> def on_webhook(payload: dict[str, str]) -> str:
            ...     return payload["url"]
            >>> queue.register_handler("webhook", on_webhook, max_retries=9)
            >>> task_id = queue.enqueue("webhook", {"url": "https://example.com"})
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            'https://example.com'
        """
        given = TaskOptions.for_task(name, **options)
        self.registry.add(Definition.for_handler(name, handler, given, payload))

    def unregister_handler(self, name: str) -> None:
        """Stop handling tasks of a name here; they stay pending for others.

        Examples:
            >>> queue.register_handler("webhook", lambda payload: None)
            >>> queue.unregister_handler("webhook")
        """
        self.registry.remove(name)

    def on_startup(self, hook: Hook) -> Hook:
        """Run a function when a worker starts; it may take the worker's state and put resources on it.

        Examples:
            >>> @queue.on_startup
            ... def open_store(state: WorkerState) -> None:
            ...     state.store = {"ada": 7}
            >>> @queue.task
            ... def read(key: str, store: Annotated[dict[str, int], Resource()] = injected()) -> int:
            ...     return store[key]
            >>> task_id = read.submit("ada")
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            7
        """
        _require_function("on_startup", hook)
        self.startup_hooks.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Run a function when a worker stops, last registered first.

        Examples:
            >>> @queue.on_shutdown
            ... def close_store(state: WorkerState) -> None:
            ...     print("closed")
            >>> queue.process_batch()
            closed
            0
        """
        _require_function("on_shutdown", hook)
        self.shutdown_hooks.append(hook)
        return hook

    def add_middleware(self, middleware: Middleware) -> None:
        """Put hooks around every execution of this queue's tasks; the first one added is the outermost.

        Examples:
            >>> class Loud(Middleware):
            ...     def before(self, ctx: TaskContext) -> None:
            ...         print("before", ctx.task.name)
            >>> queue.add_middleware(Loud())
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            before add
            1
        """
        given: Any = middleware
        if not isinstance(given, Middleware):
            raise ConfigurationError(
                f"add_middleware takes an object of your own class of Middleware, got {given!r}; write "
                "class Mine(Middleware) with before(self, ctx) or after(self, ctx, result), and add Mine()"
            )
        self.middleware.append(middleware)

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """Call a function with the context and the exception of every attempt that fails, for an error reporter.

        Examples:
            >>> @queue.on_error
            ... def report(ctx: TaskContext, error: BaseException) -> None:
            ...     print(ctx.task.name, "raised", type(error).__name__)
            >>> task_id = divide.submit(1, 0)
            >>> queue.process_batch()
            divide raised ZeroDivisionError
            1
        """
        _require_function("on_error", hook)
        self.error_hooks.append(hook)
        return hook

    def on_end(self, hook: EndHook) -> EndHook:
        """Call a function with the ids of tasks that a worker here has brought to their end, once that is recorded.

        It is called on the worker's event loop, with many ids at once where many tasks end: hand them on, to a thread
        or an asyncio task, and return.  A worker that dies in between leaves out the call, as after a lost reply.

        Examples:
            >>> ended: list[str] = []
            >>> hook = queue.on_end(ended.extend)
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            1
            >>> ended == [str(task_id)]
            True
        """
        _require_function("on_end", hook)
        self.end_hooks.append(hook)
        return hook

    def add_headers(self, source: HeaderSource) -> HeaderSource:
        """Ask a function at every submission for headers to carry along: tenant, request id, trace.

        Examples:
            >>> source = queue.add_headers(lambda: {"tenant": "acme"})
            >>> task_id = add.submit(1)
            >>> queue.get(task_id).headers
            {'tenant': 'acme'}
        """
        _require_function("add_headers", source)
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
    named = default_name(function) if name is None else name
    if not isinstance(context, bool):
        raise ConfigurationError(f"task {named!r}: context must be True or False, got {shown(context)}")
    checked = TaskOptions.for_task(named, **options)
    definition = Definition.for_function(function, name=named, options=checked, context=context)
    registry.add(definition)
    return (ContextTaskFunction if context else TaskFunction)(queue, definition, function)


def _require_function(name: str, hook: Any) -> None:
    if not callable(hook):
        raise ConfigurationError(f"{name} takes a function, got {hook!r}")
