"""The context of a running task: what it can read about itself and report.  Made by the worker; no I/O here."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace, TracebackType
from typing import Any, Final, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar, final, overload

from tasklib.core.calls.workflow import AsyncSteps, Bound, GroupOf, StepOptions, Steps, Submits, Workflow
from tasklib.core.redaction import Redactor, Texts
from tasklib.core.task import Task
from tasklib.errors import ConfigurationError, ContextError

MAX_MESSAGE_LENGTH: Final = 500
"""How much of a progress message is kept."""

Reporter: TypeAlias = Callable[[float, str | None], None]
"""Takes a progress report without waiting; called from whatever thread the task runs in."""

Progress: TypeAlias = tuple[float, str | None]
"""How far the work is, from 0 to 1, and its message."""

Recorder: TypeAlias = Callable[[str, str], None]
"""Takes the level and text of a logged line without waiting."""

_T = TypeVar("_T")
_R = TypeVar("_R")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Resource:
    """Marks a parameter, as `Annotated[T, Resource()]`, that the worker fills with what a start-up hook set.

    The resource is the attribute of the worker's state that has the parameter's name, or the name given here.
    """

    name: str | None = None


class WorkerState(SimpleNamespace):
    """What start-up hooks set for a worker's tasks: `state.db = …`; the error for an unknown name lists the others."""

    _redactor: Redactor = Redactor()

    @classmethod
    def hiding(cls, redactor: Redactor) -> WorkerState:
        """The state of a worker whose tasks' log lines this redacts."""
        return cls(_redactor=redactor)

    @property
    def redactor(self) -> Redactor:
        """Removes the secrets from the lines that tasks log."""
        return self._redactor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy, pickle and inspect ask for these
            raise AttributeError(name)
        known = ", ".join(sorted(each for each in vars(self) if not each.startswith("_"))) or "none"
        raise ContextError(
            f"no start-up hook set the resource {name!r} (set: {known}); "
            f"set it in one: @queue.on_startup, then state.{name} = ..."
        )


class TaskContext:
    """The attempt that is running now; a parameter annotated with this class receives it."""

    __slots__ = (
        "_cancelled",
        "_connection",
        "_database",
        "_event",
        "_hide",
        "_log",
        "_record",
        "_report",
        "_reported",
        "_scratch",
        "_secrets",
        "_task",
        "_worker_id",
        "_workflow",
        "state",
    )

    def __init__(
        self,
        task: Task | Callable[[], Task],
        *,
        state: WorkerState | None = None,
        worker_id: str | None = None,
        report: Reporter | None = None,
        record: Recorder | None = None,
        connection: Any = None,
        secrets: Callable[[], Sequence[str]] = tuple,
        workflow: Callable[[], Workflow] | None = None,
    ) -> None:
        """Made by the worker; a `task` given as a callable is called on first use, and so is `workflow`.

        `secrets` gives the paths of arguments that the function declares secret, for rows that do not name them.
        """
        self._task = task
        self._worker_id = worker_id
        self._report = report
        self._reported: Progress | None = None
        self._record = record
        self._connection = connection
        self._database: object = None
        self._cancelled = False
        self._event: threading.Event | None = None
        self._secrets = secrets
        self._hide: Texts | None = None
        self._log: TaskLogger | None = None
        self._scratch: dict[Any, Any] | None = None
        self._workflow = workflow
        self.state = WorkerState() if state is None else state

    @property
    def task(self) -> Task:
        """The task as it was claimed."""
        if not isinstance(self._task, Task):
            self._task = self._task()
        return self._task

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return max(1, self.task.attempts)

    @property
    def headers(self) -> Mapping[str, Any]:
        """What was carried from the submission: tenant, request id, trace."""
        return self.task.headers

    @property
    def fencing_token(self) -> int:
        """A number that grows with each claim; give it to outside systems that can refuse an older one."""
        return self.task.version

    @property
    def worker_id(self) -> str | None:
        """The worker this attempt runs in."""
        return self._worker_id or self.task.worker_id

    @property
    def cancelled(self) -> bool:
        """True once the work should end early: cancelled by a person, timed out, or the worker must stop."""
        return self._cancelled

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait in this thread until the work should end, at most `timeout` seconds; True if it should."""
        if self._event is None:
            self._event = threading.Event()
        if self._cancelled:  # checked after the event is visible, so that ask_to_end() cannot be missed
            return True
        return self._event.wait(timeout)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far the work is, from 0 to 1; never waits, and may be called often and from any thread."""
        shown = None if message is None else _fitting(self.hide.text(str(message)))
        reached = _checked_fraction(fraction)
        self._reported = (reached, shown)
        if self._report is not None:
            self._report(reached, shown)

    @property
    def reported(self) -> Progress | None:
        """The latest report of progress, which is recorded together with the attempt's end."""
        return self._reported

    @property
    def log(self) -> TaskLogger:
        """A logger whose records carry the task's details, and whose lines are kept on the task's row.

        `ctx.log("resized %s", name)` is short for `ctx.log.info(...)`.  The latest 200 lines are visible while the task
        runs, in `task.log`.
        """
        if self._log is None:
            task = self.task
            details = {
                "task_id": str(task.id),
                "task_name": task.name,
                "attempt": self.attempt,
                "worker_id": self.worker_id,
            }
            self._log = TaskLogger(_logger, details, self._record, self.hide)
        return self._log

    @property
    def hide(self) -> Texts:
        """Removes the task's secrets from a text about it; used before it is cut, or half of one could be left."""
        if self._hide is None:
            task = self.task
            self._hide = self.state.redactor.texts(task.kwargs, task.headers, self._secrets())
        return self._hide

    def keep_line(self, level: str, text: str) -> None:
        """Keep a line on the task's row that was logged where the function runs; called by the worker."""
        if self._record is not None:
            self._record(level, text)

    @property
    def connection(self) -> Any:
        """The open transaction in which this attempt will be completed too; only for `transactional=True`."""
        if self._connection is None:
            raise ContextError(
                f"task {self.task.name!r} runs in no transaction of the queue; "
                "define it with @task(transactional=True) to get ctx.connection, or open your own connection"
            )
        return self._connection

    @property
    def step_key(self) -> str | None:
        """The key of the step this code is part of; with the task's id it identifies the step in other systems."""
        return None

    def step(self, fn: Callable[_P, Awaitable[_R]] | Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """What the function returns, run once: when the task runs again, a step that is done gives its recorded value.

        Its name is the function's; the second of a name in one run is `name#2`.
        """
        return Steps(self._recording).step(fn, *args, **kwargs)

    def options(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        retries: int = 0,
        delay_seconds: float = 1.0,
        timeout_seconds: float | None = None,
        transactional: bool = False,
    ) -> Steps:
        """The same context with options for the step made through the answer.

        `retries` repeats a step that raises, after `delay_seconds` and then twice as long each time.  With
        `transactional` its writes through `ctx.connection` and the record of the step are one commit.
        """
        return Steps(
            self._recording, self._step_options(name, key, retries, delay_seconds, timeout_seconds, transactional)
        )

    def sleep(self, seconds: float | timedelta | None = None, *, until: datetime | None = None) -> None:
        """Wait for so long, or until a moment, without a slot: the function runs again from the top afterwards."""
        return Steps(self._recording).sleep(seconds, until=until)

    @overload
    def wait(
        self,
        event: str | Sequence[str],
        type: type[_R],
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> _R: ...
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
        """What the event tells, as the given type; the task waits for it without a slot.

        A message to this task (`queue.emit(..., to=id)`) is taken once, the oldest first; else a fact of that name,
        told before or after.  With several names the first to come.  After `timeout_seconds` WaitTimeout is raised.
        With `ask` it is a question to a person, and only the first answer to it counts.
        """
        return Steps(self._recording).wait(event, type, timeout_seconds=timeout_seconds, ask=ask)

    def run(self, call: Bound[_R], *, timeout_seconds: float | None = None) -> _R:
        """What a task returns that runs as a child: `ctx.run(resize.bind(image))`; the workflow waits without a slot.

        A child that fails, is cancelled or buried raises TaskFailed.  It is cancelled with the workflow.
        """
        return Steps(self._recording).run(call, timeout_seconds=timeout_seconds)

    def map(
        self,
        task: Submits[_R],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> GroupOf[_R]:
        """The ended children, one for each of the inputs, which are read as they are stored; waits without a slot.

        With more than `max_failures` failed children the rest is cancelled, and TaskFailed is raised.  The inputs must
        come in the same order when the function runs again.
        """
        return Steps(self._recording).map(task, inputs, max_failures=max_failures, timeout_seconds=timeout_seconds)

    def spend(self, budget: str, cost: float = 1) -> None:
        """Take so many tokens from a budget (`queue.set_budget`), once; short of them, wait for them without a slot.

        It is recorded, so that the function does not spend again when it runs again.  A budget that is not set, or that
        never holds so many, is a ConfigurationError.
        """
        return Steps(self._recording).spend(budget, cost)

    @property
    def _recording(self) -> Workflow:
        if self._workflow is None:
            raise ContextError(
                "steps are recorded by a worker, and this context was made without one; "
                "submit the task and let a worker or tasklib.testing run it"
            )
        return self._workflow()

    @staticmethod
    def _step_options(
        name: str | None,
        key: str | None,
        retries: int,
        delay_seconds: float,
        timeout_seconds: float | None,
        transactional: bool,
    ) -> StepOptions:
        return StepOptions(
            name=name,
            key=key,
            retries=retries,
            delay_seconds=delay_seconds,
            timeout_seconds=timeout_seconds,
            transactional=transactional,
        )

    @property
    def scratch(self) -> dict[Any, Any]:
        """A place for middleware to keep something from `before` to `after`."""
        if self._scratch is None:
            self._scratch = {}
        return self._scratch

    def join(self, database: object, connection: Any) -> None:
        """Run inside an open transaction of this database; called by the worker."""
        self._database, self._connection = database, connection

    def transaction_of(self, database: object) -> Any:
        """The open transaction if it is one of this database, else None."""
        return self._connection if self._database is database else None

    def ask_to_end(self) -> None:
        """Ask the function to end; called by the worker."""
        self._cancelled = True
        if self._event is not None:
            self._event.set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.task.name!r} {self.task.id}, attempt {self.attempt}>"


class AsyncTaskContext(TaskContext):
    """The attempt of an `async def` that is running now; what waits in a TaskContext is awaited here.

    An `async def` always gets one, also where its parameter is annotated TaskContext.
    """

    __slots__ = ()

    @overload  # type: ignore[override]  # the awaiting form of what blocks in a TaskContext
    def step(self, fn: Callable[_P, Awaitable[_R]], /, *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]: ...
    @overload
    def step(self, fn: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]: ...
    def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """As TaskContext's, awaited.  A plain function runs in a thread."""
        return AsyncSteps(self._recording).step(fn, *args, **kwargs)

    def options(  # type: ignore[override]
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        retries: int = 0,
        delay_seconds: float = 1.0,
        timeout_seconds: float | None = None,
        transactional: bool = False,
    ) -> AsyncSteps:
        """As TaskContext's, for steps that are awaited."""
        return AsyncSteps(
            self._recording, self._step_options(name, key, retries, delay_seconds, timeout_seconds, transactional)
        )

    def sleep(  # type: ignore[override]
        self, seconds: float | timedelta | None = None, *, until: datetime | None = None
    ) -> Awaitable[None]:
        """As TaskContext's, awaited."""
        return AsyncSteps(self._recording).sleep(seconds, until=until)

    @overload  # type: ignore[override]
    def wait(
        self,
        event: str | Sequence[str],
        type: type[_R],
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Awaitable[_R]: ...
    @overload
    def wait(
        self,
        event: str | Sequence[str],
        type: Any = Any,
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Awaitable[Any]: ...
    def wait(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        event: str | Sequence[str],
        type: Any = Any,
        *,
        timeout_seconds: float | None = None,
        ask: str | None = None,
    ) -> Awaitable[Any]:
        """As TaskContext's, awaited."""
        return AsyncSteps(self._recording).wait(event, type, timeout_seconds=timeout_seconds, ask=ask)

    def run(self, call: Bound[_R], *, timeout_seconds: float | None = None) -> Awaitable[_R]:  # type: ignore[override]
        """As TaskContext's, awaited."""
        return AsyncSteps(self._recording).run(call, timeout_seconds=timeout_seconds)

    def map(  # type: ignore[override]
        self,
        task: Submits[_R],
        inputs: Iterable[Mapping[str, Any]],
        *,
        max_failures: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Awaitable[GroupOf[_R]]:
        """As TaskContext's, awaited."""
        return AsyncSteps(self._recording).map(task, inputs, max_failures=max_failures, timeout_seconds=timeout_seconds)

    def spend(self, budget: str, cost: float = 1) -> Awaitable[None]:  # type: ignore[override]
        """As TaskContext's, awaited."""
        return AsyncSteps(self._recording).spend(budget, cost)


def context_class(is_async: bool) -> type[TaskContext]:
    """The context that a function gets: one decision for the worker, its children and the tests."""
    return AsyncTaskContext if is_async else TaskContext


@final
class Injected:
    """What `injected()` gives: the place of a value that the worker fills in.

    A plain call of the function finds it there, and gets an error that says so as soon as it is used.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # copy, pickle and inspect ask for these
            raise AttributeError(name)
        raise ContextError(
            f"the worker fills in this parameter, and nobody did here: .{name} has no answer; "
            "submit the task, or give the parameter a value in a plain call"
        )

    def __repr__(self) -> str:
        return "injected()"


def injected() -> Any:
    """The default of a parameter that the worker fills in, so that type checkers let callers leave it out.

    @task
    def import_rows(path: str, ctx: TaskContext = injected()) -> int: ...

    import_rows.submit("rows.csv")
    """
    return _INJECTED


_INJECTED: Final = Injected()


class StepContext(TaskContext):
    """The context while a step runs: with the step's key, and its transaction if it has one; made by the worker."""

    __slots__ = ("_key", "_outer")

    def __init__(self, outer: TaskContext, key: str) -> None:
        super().__init__(lambda: outer.task, state=outer.state, worker_id=outer.worker_id)
        self._outer = outer
        self._key = key

    @property
    def step_key(self) -> str:
        """The key of the step."""
        return self._key

    @property
    def cancelled(self) -> bool:
        """As the task's."""
        return self._outer.cancelled

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """As the task's."""
        return self._outer.wait_cancelled(timeout)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """As the task's."""
        self._outer.progress(fraction, message)

    @property
    def log(self) -> TaskLogger:
        """As the task's."""
        return self._outer.log

    @property
    def hide(self) -> Texts:
        """As the task's."""
        return self._outer.hide

    @property
    def connection(self) -> Any:
        """The open transaction in which this step is recorded too; only for `transactional=True`."""
        if self._connection is None:
            raise ContextError(
                f"step {self._key!r} runs in no transaction of the queue; "
                "write ctx.options(transactional=True).step(...) to get a connection, or open your own"
            )
        return self._connection

    @property
    def _recording(self) -> Workflow:
        raise ContextError(
            f"step {self._key!r} cannot record steps inside itself; make them in the task's own function"
        )


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's details to each record, beside what the call gives as `extra`, and keeps its line on the task."""

    def __init__(
        self,
        logger: logging.Logger,
        extra: Mapping[str, object],
        record: Recorder | None = None,
        secrets: Texts | None = None,
    ) -> None:
        super().__init__(logger, extra)
        self._record = record
        self._secrets = secrets

    def add_details(self, **details: object) -> None:
        """Let every later record carry these too, such as the ids of a trace."""
        self.extra = {**(self.extra or {}), **details}

    def __call__(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line at the level INFO."""
        self.log(logging.INFO, msg, *args, **_naming_the_caller(kwargs))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; it is kept on the task whatever level the program's logging is set to."""
        is_kept, is_shown = self._record is not None and level >= logging.INFO, self.isEnabledFor(level)
        if self._secrets is not None and (is_kept or is_shown):
            msg, args = self._secrets.text(_formatted(msg, args)), ()
            kwargs = self._without_secrets(kwargs)
        if self._record is not None and is_kept:
            self._record(logging.getLevelName(level), _fitting(_formatted(msg, args)))
        super().log(level, msg, *args, **_naming_the_caller(kwargs))

    def _without_secrets(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a logging call; of an exception that quotes a secret only its text is left."""
        assert self._secrets is not None
        given = kwargs.get("extra")
        if given:
            kwargs = {**kwargs, "extra": self._secrets.everywhere(given)}
        error = kwargs.get("exc_info")
        if not error:
            return kwargs
        raised: Any = sys.exc_info()[1] if error is True else error[1] if isinstance(error, tuple) else error
        text = "".join(traceback.format_exception(raised)).rstrip() if isinstance(raised, BaseException) else ""
        clean = self._secrets.text(text)
        return kwargs if clean == text else {**kwargs, "exc_info": _RedactedError(clean)}

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message unchanged, the details merged in."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class _RedactedError(Exception):
    """Replaces an exception whose text quotes a secret: the redacted traceback is its text."""


def _naming_the_caller(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a logging call made on behalf of the caller, whose line the record shall name."""
    return {**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1}


def _formatted(msg: object, args: tuple[object, ...]) -> str:
    """The line as logging would write it; arguments that do not fit are shown beside it."""
    try:
        return str(msg) % args if args else str(msg)
    except (TypeError, ValueError, KeyError):
        return f"{msg} {args!r}"


@overload
def current_context() -> TaskContext: ...
@overload
def current_context(default: _T, /) -> TaskContext | _T: ...
def current_context(*default: Any) -> Any:
    """The context of the task this code runs in; outside one the default, or ContextError without one."""
    found = _current.get()
    if found is not None:
        return found if isinstance(found, TaskContext) else found.context
    if default:
        return default[0]
    raise ContextError(
        "no task is running here; call this inside a task (threads started by a task need "
        "contextvars.copy_context().run), or give a default: current_context(None)"
    )


def running_attempt() -> object:
    """The attempt this code is part of, the same object each time; None outside one."""
    return _current.get()


class HasContext(Protocol):
    """An attempt, which makes its context on first use: most tasks never use it."""

    @property
    def context(self) -> TaskContext:
        """The context of the attempt."""
        ...


def make_current(attempt: HasContext) -> None:
    """Make the attempt's context the current one from here on in this context of variables; for the worker."""
    _current.set(attempt)


class activate:  # noqa: N801  used as a function in `with`
    """Make the context the current one for the code inside; for the worker."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: TaskContext) -> None:
        self._context = context

    def __enter__(self) -> TaskContext:
        self._token: Token[TaskContext | HasContext | None] = _current.set(self._context)
        return self._context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)


_current: ContextVar[TaskContext | HasContext | None] = ContextVar("tasklib_task", default=None)
_logger: Final = logging.getLogger("tasklib.task")


def _checked_fraction(fraction: Any) -> float:
    if isinstance(fraction, int | float) and not isinstance(fraction, bool):
        # A sum of tenths may end a hair beyond 1.
        clamped = min(max(float(fraction), 0.0), 1.0)
        if abs(clamped - fraction) < 1e-9:
            return clamped
    raise ConfigurationError(f"progress is a fraction from 0 to 1, got {fraction!r}; divide by the total")


def _fitting(message: Any) -> str:
    """A message the database can keep: cut to length, without NUL and lone surrogates."""
    text = str(message).replace("\0", "").encode(errors="replace").decode()
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"
