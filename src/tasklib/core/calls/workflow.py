"""What a running task may record, as its function sees it: steps with their options, and how a wait ends the attempt.

Here are only names and checks.  The worker gives a context its `Workflow`, which does the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast, overload

from tasklib.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")

MAX_KEY: Final = 200
"""Characters of a step's name or key."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_KEY and "\0" not in value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: Any, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < 1e9


class Suspended(BaseException):
    """Unwinds the function of a workflow that waits: the attempt ends, and the function runs again when it is due.

    No `Exception`, so that `except Exception` lets it pass.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is named and run; checked when it is made."""

    name: str | None = None
    key: str | None = None
    retries: int = 0
    delay_seconds: float = 1.0
    timeout_seconds: float | None = None
    transactional: bool = False

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("key", self.key)):
            if text is not None and not _is_text(text):
                raise ConfigurationError(f"the {what} of a step is a text of 1 to {MAX_KEY} characters, got {text!r}")
        if not _is_count(self.retries):
            raise ConfigurationError(f"retries of a step is a whole number, 0 or more, got {self.retries!r}")
        if not _is_seconds(self.delay_seconds, least=0):
            raise ConfigurationError(f"delay_seconds of a step is a number, 0 or more, got {self.delay_seconds!r}")
        if self.timeout_seconds is not None and not _is_seconds(self.timeout_seconds, least=1e-6):
            raise ConfigurationError(f"timeout_seconds of a step is a number above 0, got {self.timeout_seconds!r}")


NO_STEP_OPTIONS: Final = StepOptions()


R_co = TypeVar("R_co", covariant=True)


class Bound(Protocol[R_co]):
    """A task with its arguments, as `task.bind(...)` gives it."""

    @property
    def submitter(self) -> Submits[R_co]:
        """The task."""
        ...


class Submits(Protocol[R_co]):
    """A task."""

    def bind(self, *args: Any, **kwargs: Any) -> Bound[R_co]:
        """A submission that is not made yet."""
        ...


class GroupOf(Protocol[R_co]):
    """Children that have ended; it is a `tasklib.Group`."""

    total: int
    failed: int
    cancelled: int

    def results(self) -> Any:
        """What they returned, in the order of the inputs; in `for` and in `async for`."""
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


class Steps:
    """A task's context with options for its next steps; made by `ctx.options(…)` in a plain function."""

    __slots__ = ("_options", "_workflow")

    def __init__(self, workflow: Workflow, options: StepOptions = NO_STEP_OPTIONS) -> None:
        self._workflow = workflow
        self._options = options

    def step(self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `ctx.step`, with these options."""
        return cast("R", self._workflow.step(self._options, fn, args, kwargs))

    def sleep(self, seconds: float | timedelta | None = None, *, until: datetime | None = None) -> None:
        """As `ctx.sleep`, with these options."""
        return cast("None", self._workflow.sleep(self._options, seconds, until))

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
        """As `ctx.wait`, with these options."""
        return self._workflow.wait(self._options, event, type, timeout_seconds, ask)

    def run(self, call: Bound[R], *, timeout_seconds: float | None = None) -> R:
        """As `ctx.run`, with these options."""
        return cast("R", self._workflow.run(self._options, call, timeout_seconds))

    def map(
        self,
        task: Submits[R],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> GroupOf[R]:
        """As `ctx.map`, with these options."""
        return cast("GroupOf[R]", self._workflow.map(self._options, task, inputs, max_failures, timeout_seconds))

    def spend(self, budget: str, cost: float = 1) -> None:
        """As `ctx.spend`, with these options."""
        return cast("None", self._workflow.spend(self._options, budget, cost))


class AsyncSteps:
    """A task's context with options for its next steps; made by `ctx.options(…)` in a coroutine."""

    __slots__ = ("_options", "_workflow")

    def __init__(self, workflow: Workflow, options: StepOptions = NO_STEP_OPTIONS) -> None:
        self._workflow = workflow
        self._options = options

    @overload
    def step(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """As `ctx.step`, with these options."""
        return cast("Awaitable[Any]", self._workflow.step(self._options, fn, args, kwargs))

    def sleep(self, seconds: float | timedelta | None = None, *, until: datetime | None = None) -> Awaitable[None]:
        """As `ctx.sleep`, with these options."""
        return cast("Awaitable[None]", self._workflow.sleep(self._options, seconds, until))

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
        """As `ctx.wait`, with these options."""
        return cast("Awaitable[Any]", self._workflow.wait(self._options, event, type, timeout_seconds, ask))

    def run(self, call: Bound[R], *, timeout_seconds: float | None = None) -> Awaitable[R]:
        """As `ctx.run`, with these options."""
        return cast("Awaitable[R]", self._workflow.run(self._options, call, timeout_seconds))

    def map(
        self,
        task: Submits[R],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Awaitable[GroupOf[R]]:
        """As `ctx.map`, with these options."""
        return cast(
            "Awaitable[GroupOf[R]]", self._workflow.map(self._options, task, inputs, max_failures, timeout_seconds)
        )

    def spend(self, budget: str, cost: float = 1) -> Awaitable[None]:
        """As `ctx.spend`, with these options."""
        return cast("Awaitable[None]", self._workflow.spend(self._options, budget, cost))
