"""The decorated function, and the function with options: what users submit through."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, TypeVar, Unpack

from tasklib.core.task import NewTask, TaskId, TaskIds
from tasklib.definition import Definition, Misfit, shows_options
from tasklib.errors import InvalidArguments
from tasklib.submission.stream import Stream, agroups, groups, packer, refusal
from tasklib.submission.submit_options import NO_OPTIONS, SubmitKeywords, SubmitOptions, meant_option
from tasklib.submission.task_store import TaskStore

P = ParamSpec("P")
R = TypeVar("R")


class TaskFunction(Generic[P, R]):
    """A function that is also a task: call it as before, or submit it to run in the background."""

    def __init__(self, queue: Callable[[], TaskStore], definition: Definition, function: Callable[P, R]) -> None:
        self._queue = queue
        self.definition = definition
        self.function = function
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The name under which its tasks are stored."""
        return self.definition.name

    @property
    def queue(self) -> TaskStore:
        """The queue its tasks are stored in; NotInitialized for the default queue before `init`."""
        return self._queue()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function here and now."""
        return self.function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """Store a task with these arguments and return its id after a durable commit."""
        return self.options().submit(*args, **kwargs)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """The awaiting form of `submit`; concurrent ones are merged into one statement."""
        return await self.options().asubmit(*args, **kwargs)

    def submit_many(self, rows: Iterable[Mapping[str, Any]], *, keep_ids: bool = True) -> TaskIds:
        """Store one task per mapping of arguments, thousands in a statement; any iterable is read as it goes."""
        return self.options().submit_many(rows, keep_ids=keep_ids)

    async def asubmit_many(
        self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, keep_ids: bool = True
    ) -> TaskIds:
        """The awaiting form of `submit_many`; takes asynchronous iterables too."""
        return await self.options().asubmit_many(rows, keep_ids=keep_ids)

    @shows_options(SubmitOptions)
    def options(self, **options: Unpack[SubmitKeywords]) -> Submitter[P]:
        """The same task with options for the submissions made through the answer."""
        return Submitter(self._queue(), self.definition, NO_OPTIONS.with_(**options))

    if not TYPE_CHECKING:  # a type checker would take it for any attribute at all

        def __getattr__(self, name: str) -> NoReturn:
            """Only asked for what is not there: a method of other task queues is answered with what to write here."""
            own = self.__dict__.get("__name__", "task")
            if name in METHODS_ELSEWHERE:
                remedy = f"{own}{METHODS_ELSEWHERE[name]}"
                raise AttributeError(f"a task has no {name!r} here; write {remedy}", name=name, obj=self)
            raise AttributeError(f"task {own!r} has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<task {self.name!r}: {self.definition.place}>"


class Submitter(Generic[P]):
    """A task together with the options of its next submissions."""

    def __init__(self, queue: TaskStore, definition: Definition, options: SubmitOptions) -> None:
        self._queue = queue
        self._definition = definition
        self._options = options

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """Store a task with these arguments and return its id after a durable commit."""
        return self._queue.submit_new([self._new(args, kwargs)], self._options.connection)[0]

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """The awaiting form of `submit`."""
        return await self._queue.asubmit_one(self._new(args, kwargs), self._options.connection)

    def submit_many(self, rows: Iterable[Mapping[str, Any]], *, keep_ids: bool = True) -> TaskIds:
        """Store one task per mapping of arguments; each statement's rows are committed together."""
        ids, ready = TaskIds(keep=keep_ids), packer(self._queue, self._definition, self._options)
        for group in groups(rows):
            try:
                ready.add(group)
            except Misfit as misfit:
                raise refusal(misfit, ids.total) from misfit.error
            if ready.is_full:
                ids.extend(self._queue.submit_new(ready.take(), self._options.connection))
        if ready:
            ids.extend(self._queue.submit_new(ready.take(), self._options.connection))
        return ids

    async def asubmit_many(
        self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, keep_ids: bool = True
    ) -> TaskIds:
        """The awaiting form of `submit_many`; the next rows are made ready while the database stores the last."""
        ids, ready = TaskIds(keep=keep_ids), packer(self._queue, self._definition, self._options)
        async with Stream(self._queue, self._options.connection, ids) as stream:
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

    @shows_options(SubmitOptions)
    def options(self, **options: Unpack[SubmitKeywords]) -> Submitter[P]:
        """The same with some options changed."""
        return Submitter(self._queue, self._definition, self._options.with_(**options))

    def _new(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        definition = self._definition
        try:
            bound = definition.bind(args, kwargs, limit=self._queue.config.max_payload_bytes)
        except InvalidArguments as error:
            raise _with_hint(error, definition, kwargs) from error.__cause__
        return self._queue.new_task(definition, bound, self._options)


def _with_hint(error: InvalidArguments, definition: Definition, kwargs: Mapping[str, Any]) -> InvalidArguments:
    """The error, and what to write where an argument was meant as an option of the submission."""
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
