"""The decorated function, and the function with options: what users submit through."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from tasklib.core.calls.context import AsyncTaskContext, TaskContext
from tasklib.core.calls.signals import Restart
from tasklib.core.calls.signature import shows_options
from tasklib.core.codec import plain
from tasklib.core.task import NewTask
from tasklib.core.task_id import TaskId, TaskIds
from tasklib.definition import Definition, FunctionDefinition, Misfit
from tasklib.definition.functions import COROUTINE_MARKS
from tasklib.errors import ConfigurationError, InvalidArguments
from tasklib.submission.import_name import find_by_import
from tasklib.submission.stream import Packer, Stream, TaskStore, agroups, groups, refusal
from tasklib.submission.submit_options import NO_OPTIONS, SubmitKeywords, SubmitOptions, meant_option

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C_contra = TypeVar("C_contra", bound=TaskContext, contravariant=True)
T = TypeVar("T")


class Submitter(Generic[P, R_co]):
    """A task together with the options of its next submissions."""

    def __init__(self, queue: Callable[[], TaskStore], definition: Definition, options: SubmitOptions) -> None:
        self._queue = queue
        self._options = options
        self.definition = definition

    if TYPE_CHECKING:

        @property
        def _returned(self) -> R_co:
            """For type checkers alone: what the function returns, for those who wait for its result."""
            ...

    # The result of an `async def` is what it returns when it is awaited: the first form unwraps it.
    @overload
    def submit(self: Submitter[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> TaskId[T]: ...
    @overload
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId[R_co]: ...
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId[Any]:
        """Store a task with these arguments and return its id after a durable commit.

        Examples:
            >>> task_id = add.submit(1, b=2)
            >>> queue.get(task_id).kwargs
            {'a': 1, 'b': 2}
        """
        queue = self._queue()
        return queue.submit_new([self._new(queue, args, kwargs)], self._options.connection)[0]

    @overload
    async def asubmit(self: Submitter[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> TaskId[T]: ...
    @overload
    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId[R_co]: ...
    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId[Any]:
        """The awaiting form of `submit`; concurrent ones are merged into one statement."""
        queue = self._queue()
        return await queue.asubmit_one(self._new(queue, args, kwargs), self._options.connection)

    def submit_many(self, rows: Iterable[Mapping[str, Any]], *, keep_ids: bool = True) -> TaskIds:
        """Store one task per mapping of arguments, thousands in a statement; any iterable is read as it goes.

        Each statement's rows are committed together.

        Examples:
            >>> ids = add.submit_many({"a": number} for number in range(5000))
            >>> ids.total
            5000
        """
        queue = self._queue()
        ids, ready = TaskIds(keep=keep_ids), Packer(queue, self.definition, self._options)
        for group in groups(rows):
            try:
                ready.add(group)
            except Misfit as misfit:
                raise refusal(misfit, ids.total) from misfit.error
            if ready.is_full:
                ids.extend(queue.submit_new(ready.take(), self._options.connection))
        if ready:
            ids.extend(queue.submit_new(ready.take(), self._options.connection))
        return ids

    async def asubmit_many(
        self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, keep_ids: bool = True
    ) -> TaskIds:
        """The awaiting form of `submit_many`; takes asynchronous iterables too.

        The next rows are prepared while the database stores the last.
        """
        queue = self._queue()
        ids, ready = TaskIds(keep=keep_ids), Packer(queue, self.definition, self._options)
        async with Stream(queue, self._options.connection, ids) as stream:
            async for group in agroups(rows):
                try:
                    ready.add(group)
                except Misfit as misfit:
                    await stream.settle()
                    raise refusal(misfit, ids.total) from misfit.error
                if ready.is_full:
                    await stream.send(ready.take())
            if ready:
                await stream.send(ready.take())
            await stream.settle()
        return ids

    def bind_row(self, index: int, row: Mapping[str, Any]) -> NewTask:
        """The row of one of many submissions, not stored; its error names which one it is."""
        queue = self._queue()
        try:
            bound = self.definition.bind_row(index, row, limit=queue.config.max_payload_bytes)
        except Misfit as misfit:
            raise refusal(misfit, 0) from misfit.error
        return queue.new_task(self.definition, bound, self._options)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundTask[R_co]:
        """A submission that is not made yet: a workflow runs it as its child, `ctx.run(task.bind(...))`.

        Examples:
            >>> add.bind(1, b=2)
            <bound 'add'>
        """
        try:
            return self._bound(self._queue(), args, kwargs)
        except InvalidArguments as error:
            given = (*args, *kwargs.values())
            if not any(_holds_result(each) for each in given if not isinstance(each, NodeResult)):
                raise
            remedy = "a result of another task is an argument of its own, not a part of one: bind(a.result, b.result)"
            raise InvalidArguments(error.task, [*error.problems, remedy]) from error.__cause__

    def _bound(self, queue: TaskStore, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundTask[R_co]:
        if not any(isinstance(each, NodeResult) for each in (*args, *kwargs.values())):
            return BoundTask(self, self._new(queue, args, kwargs), {})
        if not isinstance(self.definition, FunctionDefinition):
            raise InvalidArguments(self.definition.name, ["a handler takes one payload, and no results of other tasks"])
        given = self.definition.by_name(args, kwargs)
        results = {name: each for name, each in given.items() if isinstance(each, NodeResult)}
        # The rest is checked with the results, when all are known.
        rest = {name: each for name, each in given.items() if name not in results}
        stored = plain(rest, what=self.definition.name, limit=queue.config.max_payload_bytes)
        return BoundTask(self, queue.new_task(self.definition, stored, self._options), results)

    def restart(self, *args: P.args, **kwargs: P.kwargs) -> Restart:
        """To be raised by a running task of this name: it continues as new, under the same id, with these arguments.

        What it has recorded is forgotten, and its attempts and retries begin anew.  Other options stay as they are.

        Examples:
            >>> @queue.task
            ... def crawl(page: int) -> int:
            ...     if page < 3:
            ...         raise crawl.restart(page + 1)
            ...     return page
            >>> task_id = crawl.submit(1)
            >>> while queue.process_batch():
            ...     pass
            >>> task_id.wait()
            3
        """
        if self._options is not NO_OPTIONS:
            raise ConfigurationError(
                f"a task keeps its options when it restarts; write {self.definition.name}.restart(...)"
            )
        return Restart(self.definition.name, self._new(self._queue(), args, kwargs).kwargs)

    @shows_options(SubmitOptions)
    def options(self, **options: Unpack[SubmitKeywords]) -> Submitter[P, R_co]:
        """The same task, with other options for the submissions made through the answer.

        Examples:
            >>> task_id = add.options(priority=9, delay_seconds=60, tags={"team": "media"}).submit(1)
            >>> queue.get(task_id).priority
            9
        """
        return Submitter(self._queue, self.definition, self._options.with_(**options))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled as its task, by the name it is imported by, and these options."""
        return _with_options, (find_by_import(self.definition, TaskFunction)[1], self._options)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def _new(self, queue: TaskStore, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        try:
            bound = self.definition.bind(args, kwargs, limit=queue.config.max_payload_bytes)
        except InvalidArguments as error:
            raise _with_hint(error, self.definition, kwargs) from error.__cause__
        return queue.new_task(self.definition, bound, self._options)


def _with_options(task: TaskFunction[..., Any], options: SubmitOptions) -> Submitter[..., Any]:
    return Submitter(lambda: task.queue, task.definition, options)


class NodeResult:
    """The result of a task of a flow that has not run yet: given as an argument, it makes a dependency."""

    __slots__ = ("node",)

    def __init__(self, node: object) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"<result of {self.node!r}>"


def _holds_result(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_result, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_holds_result, value))
    return isinstance(value, NodeResult)


class BoundTask(Generic[R_co]):
    """A task with its arguments, checked and not submitted; made by `task.bind(...)`."""

    __slots__ = ("new", "results", "submitter")

    def __init__(self, submitter: Submitter[Any, R_co], new: NewTask, results: Mapping[str, NodeResult]) -> None:
        self.submitter = submitter
        self.new = new
        self.results = results
        """The arguments that are results of other tasks of a flow."""

    def __repr__(self) -> str:
        return f"<bound {self.new.name!r}>"


class TaskFunction(Submitter[P, R_co], Generic[P, R_co]):
    """A function that is also a task: call it as before, or submit it to run in the background.

    Examples:
        >>> @queue.task
        ... def greet(name: str) -> str:
        ...     return f"Hello {name}"
        >>> greet("Ada"), greet.name
        ('Hello Ada', 'greet')
        >>> task_id = greet.submit("Ada")
    """

    def __init__(self, queue: Callable[[], TaskStore], definition: Definition, function: Callable[..., R_co]) -> None:
        super().__init__(queue, definition, NO_OPTIONS)
        self.function = function
        functools.update_wrapper(self, function, updated=())
        # What somebody has set on the function stays readable here, except under the names that a task has itself.
        for name, value in getattr(function, "__dict__", {}).items():
            if name not in self.__dict__ and not hasattr(type(self), name):
                self.__dict__[name] = value

    @property
    def name(self) -> str:
        """The name under which its tasks are stored."""
        return self.definition.name

    @property
    def queue(self) -> TaskStore:
        """The queue its tasks are stored in; NotInitialized for the default queue before `init`."""
        return self._queue()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the plain function here and now."""
        return self.function(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker would take it for any attribute at all

        def __getattr__(self, name: str) -> Any:
            """The marks of a coroutine function; else AttributeError, with a remedy if other queues have it."""
            # Frameworks look for them before they call it. Kept in the task, functools.wraps would copy them.
            if name in COROUTINE_MARKS and self.definition.is_async:
                return COROUTINE_MARKS[name]
            own = self.__dict__.get("__name__", "task")
            if name in METHODS_ELSEWHERE:
                remedy = f"{own}{METHODS_ELSEWHERE[name]}"
                raise AttributeError(f"a task has no {name!r} here; write {remedy}", name=name, obj=self)
            raise AttributeError(f"task {own!r} has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<task {self.name!r}: {self.definition.place}>"

    def __reduce__(self) -> str:
        """Pickled like a function, by its name; where it is unpickled, its module is imported and defines it."""
        return find_by_import(self.definition, TaskFunction)[0]


class ContextTaskFunction(TaskFunction[P, R_co], Generic[C_contra, P, R_co]):
    """A task whose first parameter the worker fills in: submitted without it, called with it."""

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, context: C_contra, /, *args: P.args, **kwargs: P.kwargs
        ) -> R_co:
            """Call the plain function here and now, with a context."""
            ...


class ContextDecorator(Protocol):
    """Makes a function whose first parameter is the context a task: what `@task(context=True)` gives."""

    # An `async def` that says TaskContext fits both forms, and the first is right for it.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[AsyncTaskContext, P], Coroutine[Any, Any, T]], /
    ) -> ContextTaskFunction[AsyncTaskContext, P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskContext, P], R], /
    ) -> ContextTaskFunction[TaskContext, P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        """The function as a task."""
        ...


def _with_hint(error: InvalidArguments, definition: Definition, kwargs: Mapping[str, Any]) -> InvalidArguments:
    """The error, with a hint where an argument was meant as an option of the submission."""
    parameters = {each.name for each in definition.parameters}
    options = [option for name in kwargs if name not in parameters and (option := meant_option(name))]
    if not options:
        return error
    call = f"{definition.name}.options({', '.join(f'{option}=...' for option in options)}).submit(...)"
    return InvalidArguments(error.task, [*error.problems, f"options are given apart from the arguments: {call}"])


METHODS_ELSEWHERE: Final = {
    "delay": ".submit(...)",
    "apply_async": ".submit(...), with options .options(delay_seconds=5).submit(...)",
    "apply": "(...) to call it here and now, or .submit(...) to run it in the background",
    "s": ".submit(...)",
    "si": ".submit(...)",
    "signature": ".submit(...)",
    "send": ".submit(...)",
    "send_with_options": ".options(delay_seconds=5).submit(...)",
    "enqueue": ".submit(...)",
    "aenqueue": ".asubmit(...), and await it",
    "schedule": ".options(delay_seconds=5).submit(...)",
    "defer": ".submit(...)",
    "defer_async": ".asubmit(...), and await it",
    "configure": ".options(delay_seconds=5)",
    "kiq": ".asubmit(...), and await it",
    "using": ".options(delay_seconds=5)",
}
"""What other task queues call the ways to submit, and what to write here."""
