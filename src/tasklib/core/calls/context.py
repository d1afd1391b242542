"""The context of a running task: what it can read about itself and report.  Made by the worker; no I/O here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tasklib.core.calls.resources import WorkerState
from tasklib.core.calls.steps import AsyncStepCalls, StepCalls, Workflow
from tasklib.core.calls.task_logger import Recorder, TaskLogger, fitting
from tasklib.core.numbers import is_number
from tasklib.core.redaction import Texts
from tasklib.core.task import Task
from tasklib.errors import ConfigurationError, ContextError

Reporter: TypeAlias = Callable[[float, str | None], None]
"""Takes a progress report without waiting; called from whatever thread the task runs in."""

Progress: TypeAlias = tuple[float, str | None]
"""How far the work is, from 0 to 1, and its message."""


class TaskContext(StepCalls):
    """The attempt that is running now; a parameter annotated with this class receives it.

    Examples:
        >>> @queue.task
        ... def import_rows(path: str, ctx: TaskContext = injected()) -> int:
        ...     for number in range(100):
        ...         if ctx.cancelled:
        ...             return number
        ...         ctx.progress(number / 100, f"row {number}")
        ...     ctx.log("imported %s in attempt %d", path, ctx.attempt)
        ...     return 100
        >>> task_id = import_rows.submit("rows.csv")
        >>> queue.process_batch()
        1
        >>> queue.wait(task_id).log[0].text
        'imported rows.csv in attempt 1'
    """

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
        """Wait in this thread until the work should end, at most `timeout` seconds; True if it should.

        Examples:
            >>> @queue.task
            ... def watch(ctx: TaskContext = injected()) -> str:
            ...     while not ctx.wait_cancelled(timeout=0.01):
            ...         return "looked once"
            ...     return "asked to stop"
            >>> task_id = watch.submit()
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            'looked once'
        """
        if self._event is None:
            self._event = threading.Event()
        if self._cancelled:  # checked after the event is visible, so that ask_to_end() cannot be missed
            return True
        return self._event.wait(timeout)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far the work is, from 0 to 1; never waits, and may be called often and from any thread.

        Examples:
            >>> @queue.task
            ... def encode(ctx: TaskContext = injected()) -> None:
            ...     ctx.progress(0.5, "half of it")
            >>> task_id = encode.submit()
            >>> queue.process_batch()
            1
            >>> queue.wait(task_id).progress_message
            'half of it'
        """
        shown = None if message is None else fitting(self.hide.text(str(message)))
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
            self._log = TaskLogger(details, self._record, self.hide)
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

    @property
    def _recording(self) -> Workflow:
        if self._workflow is None:
            raise ContextError(
                "steps are recorded by a worker, and this context was made without one; "
                "submit the task and let a worker or tasklib.testing run it"
            )
        return self._workflow()

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


class AsyncTaskContext(AsyncStepCalls, TaskContext):  # type: ignore[misc]  # pyright: ignore[reportIncompatibleMethodOverride]
    """The attempt of an `async def` that is running now; what blocks in a TaskContext is awaited here.

    An `async def` always gets one, also where its parameter is annotated TaskContext.

    Examples:
        >>> async def fetch(url: str) -> int:
        ...     return len(url)
        >>> @queue.task(context=True)
        ... async def crawl(ctx: AsyncTaskContext, url: str) -> int:
        ...     size = await ctx.step(fetch, url)  # once, also if the task runs again
        ...     await ctx.sleep(0.01)
        ...     return size
        >>> task_id = crawl.submit("https://example.com")
        >>> queue.process_batch()
        1
        >>> task_id.wait()
        19
    """

    __slots__ = ()


def context_class(is_async: bool) -> type[TaskContext]:
    """The context that a function gets: one decision for the worker, its children and the tests."""
    return AsyncTaskContext if is_async else TaskContext


class StepContext(TaskContext):
    """The context while a step runs: with the step's key, and its transaction if it has one; made by the worker."""

    __slots__ = ("_key", "_outer", "part_of")

    def __init__(self, outer: TaskContext, key: str, part_of: object = None) -> None:
        """`part_of` is the attempt that makes the step."""
        super().__init__(lambda: outer.task, state=outer.state, worker_id=outer.worker_id)
        self._outer = outer
        self._key = key
        self.part_of = part_of

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


def _checked_fraction(fraction: Any) -> float:
    if is_number(fraction):
        # A sum of tenths may end a hair beyond 1.
        clamped = min(max(float(fraction), 0.0), 1.0)
        if abs(clamped - fraction) < 1e-9:
            return clamped
    raise ConfigurationError(f"progress is a fraction from 0 to 1, got {fraction!r}; divide by the total")
