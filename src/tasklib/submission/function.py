"""The decorated function, and the function with options: what users submit through."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, TypeVar, Unpack

from tasklib.core.task import NewTask, TaskId, TaskIds
from tasklib.definition import Definition, Misfit, shows_options
from tasklib.errors import InvalidArguments
from tasklib.submission.stream import Packer, Stream, TaskStore, agroups, groups, refusal
from tasklib.submission.submit_options import NO_OPTIONS, SubmitKeywords, SubmitOptions, meant_option

P = ParamSpec("P")
R = TypeVar("R")


class Submitter(Generic[P]):
    """A task together with the options of its next submissions."""

    def __init__(self, queue: Callable[[], TaskStore], definition: Definition, options: SubmitOptions) -> None:
        self._queue = queue
        self._options = options
        self.definition = definition

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """Store a task with these arguments and return its id after a durable commit."""
        queue = self._queue()
        return queue.submit_new([self._new(queue, args, kwargs)], self._options.connection)[0]

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """The awaiting form of `submit`; concurrent ones are merged into one statement."""
        queue = self._queue()
        return await queue.asubmit_one(self._new(queue, args, kwargs), self._options.connection)

    def submit_many(self, rows: Iterable[Mapping[str, Any]], *, keep_ids: bool = True) -> TaskIds:
        """Store one task per mapping of arguments, thousands in a statement; any iterable is read as it goes.

        Each statement's rows are committed together.
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

    @shows_options(SubmitOptions)
    def options(self, **options: Unpack[SubmitKeywords]) -> Submitter[P]:
        """The same task, with other options for the submissions made through the answer."""
        return Submitter(self._queue, self.definition, self._options.with_(**options))

    def _new(self, queue: TaskStore, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        try:
            bound = self.definition.bind(args, kwargs, limit=queue.config.max_payload_bytes)
        except InvalidArguments as error:
            raise _with_hint(error, self.definition, kwargs) from error.__cause__
        return queue.new_task(self.definition, bound, self._options)


class TaskFunction(Submitter[P], Generic[P, R]):
    """A function that is also a task: call it as before, or submit it to run in the background."""

    def __init__(self, queue: Callable[[], TaskStore], definition: Definition, function: Callable[P, R]) -> None:
        super().__init__(queue, definition, NO_OPTIONS)
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

    if not TYPE_CHECKING:  # a type checker would take it for any attribute at all

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError; for a method of other task queues it says what to write here."""
            own = self.__dict__.get("__name__", "task")
            if name in METHODS_ELSEWHERE:
                remedy = f"{own}{METHODS_ELSEWHERE[name]}"
                raise AttributeError(f"a task has no {name!r} here; write {remedy}", name=name, obj=self)
            raise AttributeError(f"task {own!r} has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<task {self.name!r}: {self.definition.place}>"


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
