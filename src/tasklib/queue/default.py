"""The default queue behind the module functions; the only global state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Literal, Never, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from tasklib.core.calls.signature import shows_options
from tasklib.core.codec import shown
from tasklib.core.config import Config
from tasklib.core.task import Task
from tasklib.core.task_id import TaskId, default_source
from tasklib.definition import Definition, FunctionDefinition, Registry, TaskKeywords, TaskOptions
from tasklib.errors import ConfigurationError, NotInitialized
from tasklib.queue import TaskQueue, define
from tasklib.queue.results import TaskResults
from tasklib.submission import ContextDecorator, SubmitOptions, Submitter, TaskFunction

P = ParamSpec("P")
R = TypeVar("R")


class _Default:
    """Holds the default queue; its registry exists before it, because functions are decorated at import."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.queue: TaskQueue | None = None


_default = _Default()
default_source.get = lambda: TaskResults(default_queue())


def init(config: str | Config | None = None) -> None:
    """Set up the default queue; called again with another configuration it replaces the first.

    Examples:
        >>> init("sqlite:///:memory:")
        >>> default_queue().count()
        0
    """
    if _default.queue is not None:
        _default.queue.close()
    _default.queue = TaskQueue(config, registry=_default.registry)


def default_queue() -> TaskQueue:
    """The default queue; NotInitialized before `init`.

    Examples:
        >>> init("sqlite:///:memory:")
        >>> default_queue().stats().total
        0
    """
    if _default.queue is None:
        raise NotInitialized
    return _default.queue


def default_queue_or(config: str | Config) -> TaskQueue:
    """The default queue as the program has set it up; if it has not, one with this configuration."""
    if _default.queue is None:
        init(config)
    return default_queue()


def queue_for(config: str | Config | None) -> TaskQueue:
    """The default queue if it has this configuration, else one with the same tasks on the other database."""
    if _default.queue is not None and (config is None or Config.of(config) == _default.queue.config):
        return _default.queue
    if _default.queue is None and config is not None:
        return default_queue_or(config)
    return TaskQueue(config, registry=_default.registry)


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(*, context: Literal[True], name: str | None = None, **options: Unpack[TaskKeywords]) -> ContextDecorator: ...
@overload
def task(
    *, name: str | None = None, context: Literal[False] = False, **options: Unpack[TaskKeywords]
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
@shows_options(TaskOptions)
def task(function: Any = None, /, *, name: str | None = None, context: bool = False, **options: Any) -> Any:
    """Make a function a task of the default queue: `@task` or `@task(max_retries=5, timeout_seconds=30)`.

    With `context=True` its first parameter is the TaskContext, which callers leave out.
    """

    def decorate(plain_function: Callable[..., R]) -> TaskFunction[..., R]:
        return define(_default.registry, default_queue, plain_function, name, options, context)

    return decorate if function is None else decorate(function)


@overload
async def submit_task(
    func: Callable[..., Coroutine[Any, Any, R]],
    *positional: Never,
    delay_seconds: float | timedelta = 0,
    max_retries: int | None = None,
    timeout_seconds: float | None = None,
    priority: int | None = None,
    tags: dict[str, Any] | None = None,
    **kwargs: Any,
) -> TaskId[R]: ...
@overload
async def submit_task(
    func: Callable[..., R],
    *positional: Never,
    delay_seconds: float | timedelta = 0,
    max_retries: int | None = None,
    timeout_seconds: float | None = None,
    priority: int | None = None,
    tags: dict[str, Any] | None = None,
    **kwargs: Any,
) -> TaskId[R]: ...
@overload
async def submit_task(
    func: str,
    *positional: Never,
    delay_seconds: float | timedelta = 0,
    max_retries: int | None = None,
    timeout_seconds: float | None = None,
    priority: int | None = None,
    tags: dict[str, Any] | None = None,
    **kwargs: Any,
) -> TaskId: ...
async def submit_task(
    func: Callable[..., Any] | str,
    *positional: Never,
    delay_seconds: float | timedelta = 0,
    max_retries: int | None = None,
    timeout_seconds: float | None = None,
    priority: int | None = None,
    tags: dict[str, Any] | None = None,
    **kwargs: Any,
) -> TaskId:
    """Store a task that calls `func(**kwargs)` later, and return its id after a durable commit.

    Examples:
        >>> init("sqlite:///:memory:")
        >>> @task(name="examples.thrice")
        ... def thrice(number: int) -> int:
        ...     return 3 * number
        >>> task_id = asyncio.run(submit_task(thrice, priority=5, number=4))
        >>> default_queue().process_batch()
        1
        >>> task_id.wait()
        12
    """
    if positional:
        raise ConfigurationError(
            f"submit_task() takes the task's arguments by name, got {shown(positional[0])} by position; write "
            "submit_task(send_email, to=...), or send_email.asubmit(...), which takes them as the function does"
        )
    queue = default_queue()
    options = SubmitOptions(
        delay_seconds=delay_seconds,
        max_retries=max_retries,
        timeout_seconds=timeout_seconds,
        priority=priority,
        tags=tags,
    )
    definition = find_definition(queue, func)
    _refuse_shadowed(definition, options)
    submitter: Submitter[..., Any] = Submitter(default_queue, definition, options)
    return await submitter.asubmit(**kwargs)


def _refuse_shadowed(definition: Definition, options: SubmitOptions) -> None:
    """Refuse an option where the function has a parameter of the same name: it could mean either."""
    if isinstance(definition, FunctionDefinition):
        for name in definition.shadowed_options():
            if getattr(options, name):
                call = f"{definition.name}.options({name}=...).asubmit({name}=...)"
                raise ConfigurationError(
                    f"task {definition.name!r} has a parameter {name!r}, which submit_task() takes for itself; "
                    f"say which you mean: {call}"
                )


def find_definition(queue: TaskQueue, func: Any) -> Definition:
    """The definition of a task given as its decorated or plain function, or by name."""
    return queue.registry.find(func.definition if isinstance(func, TaskFunction) else func)


def get_task(task_id: UUID | str) -> Task | None:
    """The task with this id, or None; InvalidTaskId if what is given cannot be one.

    Examples:
        >>> init("sqlite:///:memory:")
        >>> task_id = default_queue().enqueue("send_email", {"to": "ada"})
        >>> get_task(task_id).kwargs
        {'to': 'ada'}
    """
    return default_queue().get(task_id)


def list_tasks(state: str | Iterable[str] | None = None, name: str | None = None, limit: int = 100) -> list[Task]:
    """Tasks in a state and of a name, newest first.

    Examples:
        >>> init("sqlite:///:memory:")
        >>> task_id = default_queue().enqueue("send_email", {"to": "ada"})
        >>> [task.name for task in list_tasks(state="pending")]
        ['send_email']
    """
    return default_queue().list(state=state, name=name, limit=limit)


def get_registered_tasks() -> dict[str, tuple[Callable[..., Any], Any]]:
    """Every task defined for the default queue: name → (function, options).

    Examples:
        >>> @task(name="examples.twice")
        ... def twice(number: int) -> int:
        ...     return 2 * number
        >>> function, options = get_registered_tasks()["examples.twice"]
        >>> function(4)
        8
    """
    return {name: (definition.function, definition.options) for name, definition in _default.registry.items()}
