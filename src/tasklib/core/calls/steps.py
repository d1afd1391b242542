"""Steps, waits and children, as the function of a workflow calls them on its context.

This module has only names, types and checks; the worker gives each context a `Workflow`, which does the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from tasklib.core.calls.groups import Group
from tasklib.core.calls.signature import explains_wrong_calls, shows_options
from tasklib.core.codec import is_storable
from tasklib.core.numbers import is_number, is_whole
from tasklib.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")

MAX_KEY: Final = 200
"""Characters of a step's name or key."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_KEY and is_storable(value)


def _is_seconds(value: Any, least: float) -> bool:
    return is_number(value) and least <= value < 1e9


class StepKeywords(TypedDict, total=False):
    """The options of a step, as `ctx.options(…)` takes them."""

    name: str | None
    key: str | None
    retries: int
    delay_seconds: float
    timeout_seconds: float | None
    transactional: bool
    undo: Bound[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is named and run; checked when it is made."""

    name: str | None = None
    key: str | None = None
    retries: int = 0
    delay_seconds: float = 1.0
    timeout_seconds: float | None = None
    transactional: bool = False
    undo: Bound[Any] | None = None

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("key", self.key)):
            if text is not None and not _is_text(text):
                raise ConfigurationError(f"the {what} of a step is a text of 1 to {MAX_KEY} characters, got {text!r}")
        if not isinstance(self.transactional, bool):
            raise ConfigurationError(f"transactional of a step is True or False, got {self.transactional!r}")
        if not is_whole(self.retries) or self.retries < 0:
            raise ConfigurationError(f"retries of a step is a whole number, 0 or more, got {self.retries!r}")
        if not _is_seconds(self.delay_seconds, least=0):
            raise ConfigurationError(f"delay_seconds of a step is a number, 0 or more, got {self.delay_seconds!r}")
        if self.timeout_seconds is not None and not _is_seconds(self.timeout_seconds, least=1e-6):
            raise ConfigurationError(f"timeout_seconds of a step is a number above 0, got {self.timeout_seconds!r}")


NO_STEP_OPTIONS: Final = StepOptions()


R_co = TypeVar("R_co", covariant=True)


class Returning(Protocol[R_co]):
    """A task whose function returns this."""

    @property
    def _returned(self) -> R_co:
        """For type checkers alone, which find here what the function returns."""
        ...


class Bound(Protocol[R_co]):
    """A task with its arguments, as `task.bind(...)` gives it."""

    @property
    def submitter(self) -> Returning[R_co]:
        """The task."""
        ...


class RunsAsChildren(Protocol):
    """A flow, as `queue.flow(name)` gives it."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def as_children(self, group: str, priority: int) -> Any:
        """Its rows as children of a workflow."""
        ...


class Workflow(Protocol):
    """What the worker gives a context: every call blocks in a plain function, and is awaited in a coroutine."""

    def step(self, options: StepOptions, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the function once, and remember what it returned."""
        ...

    def sleep(self, options: StepOptions, seconds: float | timedelta | None, until: datetime | None) -> Any:
        """Wait without a slot."""
        ...

    def wait(
        self,
        options: StepOptions,
        events: str | Sequence[str],
        type: Any,
        timeout_seconds: float | None,
        ask: str | None,
    ) -> Any:
        """Wait for an event, or for a person's answer."""
        ...

    def run(self, options: StepOptions, call: Any, timeout_seconds: float | None) -> Any:
        """Run a task as a child, and wait for its result."""
        ...

    def map(
        self,
        options: StepOptions,
        task: Any,
        inputs: Iterable[Mapping[str, Any]],
        max_failures: int | None,
        timeout_seconds: float | None,
    ) -> Any:
        """Run a task for each of many inputs as children, and wait for all."""
        ...

    def spend(self, options: StepOptions, budget: str, cost: float) -> Any:
        """Take tokens from a budget, once there are enough."""
        ...


class Calls:
    """What blocking and awaiting calls have in common: where steps are recorded, and their options."""

    __slots__ = ()

    @property
    def _recording(self) -> Workflow:
        """Where steps are recorded."""
        raise NotImplementedError

    @property
    def _step_options(self) -> StepOptions:
        """How the next step is named and run."""
        return NO_STEP_OPTIONS


@explains_wrong_calls
class StepCalls(Calls):
    """What a plain function may ask of its context: every call blocks."""

    __slots__ = ()

    @shows_options(StepOptions)
    def options(self, **options: Unpack[StepKeywords]) -> Steps:
        """The same calls with options: for how a step is named and run.

        `retries` repeats a step that raises, after `delay_seconds` and then twice as long each time.  With
        `transactional` its writes through `ctx.connection` and the record of the step are one commit.  `undo`, a
        `task.bind(...)`, is bound before the step runs: if the workflow ends in anything but success, that task is
        submitted, once, after the undos of later steps.

        Examples:
            >>> @queue.task(context=True)
            ... def order(ctx: TaskContext, number: int) -> int:
            ...     return ctx.options(name="charge", retries=3, delay_seconds=2).step(abs, -number)
            >>> task_id = order.submit(7)
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            7
        """
        return Steps(self._recording, StepOptions(**options))

    @overload
    def step(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, run once: when the task runs again, a step that is done gives its recorded value.

        Its name is the function's; the second of a name in one run is `name#2`.

        Examples:
            >>> def reserve(order: int) -> str:
            ...     return f"shelf-{order}"
            >>> @queue.task(context=True)
            ... def fulfil(ctx: TaskContext, order: int) -> str:
            ...     return ctx.step(reserve, order)
            >>> task_id = fulfil.submit(42)
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            'shelf-42'
        """
        return self._recording.step(self._step_options, fn, args, kwargs)

    def sleep(self, seconds: float | timedelta | None = None, *, until: datetime | None = None) -> None:
        """Wait for so long, or until a moment, without a slot: the function runs again from the top afterwards.

        Examples:
            >>> @queue.task(context=True)
            ... def remind(ctx: TaskContext) -> str:
            ...     ctx.sleep(timedelta(days=3))
            ...     return "reminded"
            >>> task_id = remind.submit()
            >>> queue.process_batch()
            1
            >>> queue.get(task_id).waits_for
            'sleep'
        """
        return cast("None", self._recording.sleep(self._step_options, seconds, until))

    @overload
    def wait(
        self,
        event: str | Sequence[str],
        type: type[R],
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> R: ...
    @overload
    def wait(
        self,
        event: str | Sequence[str],
        type: Any = Any,
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Any: ...
    def wait(
        self,
        event: str | Sequence[str],
        type: Any = Any,
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Any:
        """What the event carries, as the given type; the task waits for it without a slot.

        A message to this task (`queue.emit(..., to=id)`) is taken once, the oldest first; else a fact of that name,
        emitted before or after.  With several names the first to come.  After `timeout_seconds` WaitTimeout is raised.
        With `ask` it is a question to a person, and only the first answer to it counts.

        Examples:
            >>> @queue.task(context=True)
            ... def ship(ctx: TaskContext, order: int) -> float:
            ...     return ctx.wait(f"paid:{order}", float, timeout_seconds=86_400)
            >>> is_new = queue.emit("paid:42", 9.9)
            >>> task_id = ship.submit(42)
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            9.9
        """
        return self._recording.wait(self._step_options, event, type, timeout_seconds, ask)

    # The result of an `async def` is what it returns when it is awaited: the first form unwraps it.
    @overload
    def run(self, call: Bound[Coroutine[Any, Any, R]], *, timeout_seconds: float | None = None) -> R: ...
    @overload
    def run(self, call: Bound[R], *, timeout_seconds: float | None = None) -> R: ...
    @overload
    def run(self, call: RunsAsChildren, *, timeout_seconds: float | None = None) -> Group[Any]: ...
    def run(self, call: Bound[Any] | RunsAsChildren, *, timeout_seconds: float | None = None) -> Any:
        """What a task returns that runs as a child: `ctx.run(resize.bind(image))`; the workflow waits without a slot.

        A child that fails, is cancelled or buried raises TaskFailed.  It is cancelled with the workflow.  A flow,
        `ctx.run(flow)`, gives its tasks as a Group once all have ended, and raises TaskFailed if one of them failed.

        Examples:
            >>> @queue.task(context=True)
            ... def double(ctx: TaskContext, number: int) -> int:
            ...     return ctx.run(add.bind(number, number))
            >>> task_id = double.submit(4)
            >>> while queue.process_batch():
            ...     pass
            >>> task_id.wait()
            8
        """
        return self._recording.run(self._step_options, call, timeout_seconds)

    @overload
    def map(
        self,
        task: Returning[Coroutine[Any, Any, R]],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Group[R]: ...
    @overload
    def map(
        self,
        task: Returning[R],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Group[R]: ...
    def map(
        self,
        task: Returning[Any],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Group[Any]:
        """The ended children, one for each of the inputs, which are read as they are stored; waits without a slot.

        With more than `max_failures` failed children the rest is cancelled, and TaskFailed is raised.  The inputs must
        come in the same order when the function runs again.

        Examples:
            >>> @queue.task(context=True)
            ... def plus_one(ctx: TaskContext, numbers: list[int]) -> list[int]:
            ...     done = ctx.map(add, ({"a": number} for number in numbers), max_failures=0)
            ...     return list(done.results())
            >>> task_id = plus_one.submit([1, 2, 3])
            >>> while queue.process_batch():
            ...     pass
            >>> task_id.wait()
            [2, 3, 4]
        """
        return cast("Group[Any]", self._recording.map(self._step_options, task, inputs, max_failures, timeout_seconds))

    def spend(self, budget: str, cost: float = 1) -> None:
        """Take so many tokens from a budget (`queue.set_budget`), once; short of them, wait for them without a slot.

        It is recorded, so that the function does not spend again when it runs again.  A budget that is not set, or that
        never holds so many, is a ConfigurationError.

        Examples:
            >>> queue.set_budget("calls", per_second=5)
            >>> @queue.task(context=True)
            ... def look_up(ctx: TaskContext, name: str) -> str:
            ...     ctx.spend("calls")
            ...     return name.upper()
            >>> task_id = look_up.submit("ada")
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            'ADA'
        """
        return cast("None", self._recording.spend(self._step_options, budget, cost))


class WithOptions(Calls):
    """Calls whose options were given."""

    __slots__ = ("_given", "_workflow")

    def __init__(self, workflow: Workflow, options: StepOptions) -> None:
        self._workflow = workflow
        self._given = options

    @property
    def _recording(self) -> Workflow:
        return self._workflow

    @property
    def _step_options(self) -> StepOptions:
        return self._given


class Steps(WithOptions, StepCalls):
    """A task's context with options for its next steps; made by `ctx.options(…)` in a plain function."""

    __slots__ = ()


@explains_wrong_calls
class AsyncStepCalls(Calls):
    """What a coroutine may ask of its context: every call returns an awaitable."""

    __slots__ = ()

    @shows_options(StepOptions)
    def options(self, **options: Unpack[StepKeywords]) -> AsyncSteps:
        """As `TaskContext.options`, for calls that are awaited."""
        return AsyncSteps(self._recording, StepOptions(**options))

    @overload
    def step(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """As `TaskContext.step`, awaited.  A plain function runs in a thread."""
        return cast("Awaitable[Any]", self._recording.step(self._step_options, fn, args, kwargs))

    def sleep(self, seconds: float | timedelta | None = None, *, until: datetime | None = None) -> Awaitable[None]:
        """As `TaskContext.sleep`, awaited."""
        return cast("Awaitable[None]", self._recording.sleep(self._step_options, seconds, until))

    @overload
    def wait(
        self,
        event: str | Sequence[str],
        type: type[R],
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Awaitable[R]: ...
    @overload
    def wait(
        self,
        event: str | Sequence[str],
        type: Any = Any,
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Awaitable[Any]: ...
    def wait(
        self,
        event: str | Sequence[str],
        type: Any = Any,
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Awaitable[Any]:
        """As `TaskContext.wait`, awaited."""
        return cast("Awaitable[Any]", self._recording.wait(self._step_options, event, type, timeout_seconds, ask))

    @overload
    def run(self, call: Bound[Coroutine[Any, Any, R]], *, timeout_seconds: float | None = None) -> Awaitable[R]: ...
    @overload
    def run(self, call: Bound[R], *, timeout_seconds: float | None = None) -> Awaitable[R]: ...
    @overload
    def run(self, call: RunsAsChildren, *, timeout_seconds: float | None = None) -> Awaitable[Group[Any]]: ...
    def run(self, call: Bound[Any] | RunsAsChildren, *, timeout_seconds: float | None = None) -> Awaitable[Any]:
        """As `TaskContext.run`, awaited."""
        return cast("Awaitable[Any]", self._recording.run(self._step_options, call, timeout_seconds))

    @overload
    def map(
        self,
        task: Returning[Coroutine[Any, Any, R]],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Awaitable[Group[R]]: ...
    @overload
    def map(
        self,
        task: Returning[R],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Awaitable[Group[R]]: ...
    def map(
        self,
        task: Returning[Any],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Awaitable[Group[Any]]:
        """As `TaskContext.map`, awaited."""
        found = self._recording.map(self._step_options, task, inputs, max_failures, timeout_seconds)
        return cast("Awaitable[Group[Any]]", found)

    def spend(self, budget: str, cost: float = 1) -> Awaitable[None]:
        """As `TaskContext.spend`, awaited."""
        return cast("Awaitable[None]", self._recording.spend(self._step_options, budget, cost))


class AsyncSteps(WithOptions, AsyncStepCalls):
    """A task's context with options for its next steps; made by `ctx.options(…)` in a coroutine."""

    __slots__ = ()
