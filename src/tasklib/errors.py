"""Every error tasklib raises, as one tree.

    TaskLibError
    ├── ConfigurationError          a setting, URL or option that cannot work
    ├── NotInitialized              the module functions were used before tasklib.init()
    ├── TaskDefinitionError         a function that cannot be a task
    │   └── TaskNotRegistered       a function or name no task was defined for
    ├── InvalidArguments            arguments that do not fit the task (also ValueError)
    │   └── InvalidPayload          JSON that one of the databases cannot store
    ├── TaskNotFound                no task has this id (also LookupError)
    │   └── InvalidTaskId           the value is not a task id (also ValueError)
    ├── InvalidTransition           the task's state does not allow this
    ├── UniqueConflict              a live task already holds the unique key
    ├── ClaimLost                   another attempt or a person changed the task first
    ├── ContextError                the task's context has no such value (also AttributeError, LookupError)
    ├── WaitTimeout                 the task did not finish in time (also TimeoutError)
    ├── TaskFailed                  the task that was waited for did not complete
    ├── StepFailed                  a step of a workflow raised, and so did its retries
    ├── StepKeyError                two steps could not be told apart when the function runs again (also ValueError)
    ├── NonDeterminism              the code asks for another step than the one recorded: the task is parked
    ├── StorageError                the database refused or failed
    │   ├── DatabaseUnavailable     cannot be reached, or the connection broke
    │   │   └── DatabaseReplaced    the SQLite file was deleted or replaced while it was open
    │   ├── DatabaseBusy            another process kept SQLite's write lock
    │   ├── DatabaseFull            no room left to write
    │   ├── PermissionDenied        the database role may not do this
    │   └── SchemaError             tables that are missing, foreign, too old or too new
    │       ├── SchemaMissing
    │       ├── SchemaOutdated
    │       ├── SchemaTooNew
    │       ├── SchemaMismatch
    │       └── ForeignTable
    └── ExecutionError              written into a task's `error`, seldom raised at a caller
        ├── TaskTimeout             ran past timeout_seconds
        ├── WorkerLost              its worker stopped sending heartbeats
        ├── ProcessDied             its child process was killed, crashed or ended itself
        ├── ProcessNotReady         its child process could not load it
        ├── ResultError             the result cannot be stored as JSON, or is too large
        └── WorkerStuck             too many threads are stuck in timed-out tasks

A message says what was wrong, with which value, and what to do; the data a program needs is on the exception.
`Retry`, `Snooze` and `Abort` are not errors but signals a task function raises to choose its outcome.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from tasklib.given import instead_of_id, instead_of_task


class _Picklable(Exception):
    """Survives pickling whatever its constructor takes; a plain Exception would be made from its message."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[_Picklable], args: tuple[Any, ...], state: dict[str, Any]) -> _Picklable:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class TaskLibError(_Picklable):
    """Base of every error raised by tasklib."""


class ConfigurationError(TaskLibError, ValueError):
    """A setting that cannot work."""


class NotInitialized(TaskLibError):
    """No queue has been set up: call tasklib.init(Config(database_url=...)) first."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


class TaskDefinitionError(TaskLibError, TypeError):
    """A function that cannot be a task."""


class TaskNotRegistered(TaskDefinitionError):
    """No task of this name is defined here."""

    def __init__(self, name: str, known: list[str] | None = None) -> None:
        self.name = name
        self.known = sorted(known or [])
        listing = ", ".join(self.known[:10]) or "none"
        super().__init__(
            f"no task {name!r} is defined here (defined: {listing}); "
            "decorate the function with @tasklib.task or @queue.task, or submit by name with queue.enqueue()"
        )


class InvalidArguments(TaskLibError, ValueError):
    """The arguments do not fit the task's parameters; nothing was stored, or the stored task cannot run.

    Examples:
        >>> try:
        ...     add.submit("one")
        ... except InvalidArguments as error:
        ...     print(error.problems)
        ["'a': Input should be a valid integer, ..."]
    """

    def __init__(self, task: str, problems: list[str], *, stored: bool = False, kept: int = 0) -> None:
        self.task = task
        self.problems = problems
        self.stored = stored
        self.kept = kept
        if stored:
            start, end = "the stored arguments", "were they written before a change of its parameters?"
        else:
            start = "arguments"
            end = f"the first {kept:,} tasks were stored before" if kept else "nothing was stored"
        super().__init__(f"{start} do not fit task {task!r}: {'; '.join(problems)}; {end}")


class InvalidPayload(InvalidArguments):
    """The value is not JSON that both PostgreSQL and SQLite can store; nothing was stored."""

    field: str = "payload"
    """Where the value was given."""

    @classmethod
    def of_value(cls, what: str, problems: list[str], *, field: str = "payload") -> InvalidPayload:
        """For a value that is no task's arguments: an event's payload, an answer."""
        error = cls(what, problems)
        error.field = field
        error.args = (f"{what} cannot be taken: {'; '.join(problems)}; nothing was stored",)
        return error


class TaskNotFound(TaskLibError, LookupError):
    """No task has this id.

    Examples:
        >>> try:
        ...     queue.cancel("0198aa00-0000-7000-8000-000000000000")
        ... except TaskNotFound as error:
        ...     print(error)
        no task ...
    """

    def __init__(self, task_id: UUID | str) -> None:
        self.task_id = task_id
        super().__init__(f"no task has the id {task_id}; it may have been deleted or cleaned up")

    @classmethod
    def instead_of_task(cls, given: Any) -> TaskNotFound:
        """For what was given where a task is needed: None, as for an id that no task has, or an id."""
        error = cls(given)
        error.args = (f"a task is needed, as get_task(id) and queue.get(id) return it; {instead_of_task(given)}",)
        return error


class InvalidTaskId(TaskNotFound, ValueError):
    """The value cannot be a task's id."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.args = (f"a task's id is a UUID, as submit() returns it; {instead_of_id(given)}",)


class InvalidTransition(TaskLibError):
    """The task's present state does not allow the action.

    Examples:
        >>> task_id = add.submit(1)
        >>> try:
        ...     queue.delete(task_id)
        ... except InvalidTransition as error:
        ...     print(error)
        cannot delete task ...
    """

    def __init__(self, task_id: UUID, state: str, action: str, allowed: str, remedy: str | None = None) -> None:
        self.task_id = task_id
        self.state = state
        self.action = action
        super().__init__(
            f"cannot {action} task {task_id}: it is {state}; {action} is possible when it is {allowed}"
            + (f"; {remedy}" if remedy else "")
        )


class UniqueConflict(TaskLibError):
    """A live task of this name already holds the unique key.

    Examples:
        >>> first = add.options(unique_key="once").submit(1)
        >>> try:
        ...     add.options(unique_key="once", on_conflict="raise").submit(2)
        ... except UniqueConflict as error:
        ...     print(error.existing_id == first)
        True
    """

    def __init__(self, name: str, unique_key: str, existing_id: UUID | None, reason: str = "") -> None:
        self.name = name
        self.unique_key = unique_key
        self.existing_id = existing_id
        super().__init__(
            f"task {existing_id} of {name!r} already holds the unique key {unique_key!r}"
            f"{': ' + reason if reason else ''}; "
            "wait for it to finish, cancel it, or use on_conflict='return'"
        )


class ClaimLost(TaskLibError):
    """The attempt no longer owns the task; its write was refused and changed nothing."""

    def __init__(self, task_id: UUID, version: int, state: str | None = None) -> None:
        self.task_id = task_id
        self.version = version
        self.state = state
        super().__init__(
            f"claim {version} of task {task_id} is no longer valid "
            f"(the task is {state or 'deleted or claimed again'}); the late write was refused and changed nothing"
        )


class WaitTimeout(TaskLibError, TimeoutError):
    """The end of a task, or an event, did not come in time.

    Examples:
        >>> task_id = add.options(delay_seconds=3600).submit(1)
        >>> try:
        ...     task_id.wait(timeout=0.01)
        ... except WaitTimeout as error:
        ...     print(error.state)
        pending
    """

    def __init__(self, task_id: UUID | None, timeout: float, state: str, *, step: str | None = None) -> None:
        self.task_id = task_id
        self.state = state
        self.step = step
        """The key of the wait in a workflow; None where a program waited for a task."""
        remedy = "wait again, or call queue.explain(id)"
        text = f"task {task_id} was still {state} after {timeout:g} s and goes on; {remedy}"
        if step is not None:
            text = f"{step!r} was waited for and did not come in time; catch WaitTimeout, or wait longer"
        super().__init__(text)


class EndedTask(Protocol):
    """What is known here of a task that has ended; it is a `tasklib.Task`."""

    @property
    def id(self) -> UUID:
        """Its id."""
        ...

    @property
    def name(self) -> str:
        """The kind of task."""
        ...

    @property
    def state(self) -> str:
        """`failed`, `cancelled` or `buried`."""
        ...

    @property
    def error(self) -> str | None:
        """The traceback of its last attempt."""
        ...

    @property
    def kwargs(self) -> Any:
        """Its arguments."""
        ...

    @property
    def attempts(self) -> int:
        """How many attempts it had."""
        ...

    @property
    def max_attempts(self) -> int:
        """How many it could have had."""
        ...


class TaskFailed(TaskLibError):
    """The task that was waited for has failed for good, was cancelled or buried; `task` is the task as it ended.

    Examples:
        >>> task_id = divide.submit(1, 0)
        >>> queue.process_batch()
        1
        >>> try:
        ...     task_id.wait()
        ... except TaskFailed as error:
        ...     print(error.task.state.value, error.task.error.splitlines()[-1])
        failed ZeroDivisionError: division by zero
    """

    def __init__(self, task: EndedTask, *, is_group: bool = False) -> None:
        self.task = task
        self.task_id = task.id
        self.step: str | None = None
        """The key of the step in a workflow whose child it was; None where a program waited for the task."""
        lines = [line for line in (task.error or "").splitlines() if line[:1].strip()]
        reason = f" with: {lines[-1][:300]}" if lines else ""
        how = "failed" if task.state == "failed" else f"was {task.state}"
        one = f"task {task.id} of {task.name!r} {how} after {task.attempts} of {task.max_attempts} attempts{reason}"
        many = f"the children of {task.name!r} failed{reason}"
        gone = f"the child {task.name!r} was deleted before its end was seen"
        super().__init__(
            f"{many}; queue.retry(id) of their workflow runs those that failed again"
            if is_group
            else f"{gone}; queue.retry(id) of its workflow runs it anew"
            if task.state == "deleted"
            else f"{one}; error.task.error has the whole text, queue.retry(id) runs it again"
        )


class StepFailed(TaskLibError):
    """A step raised, and so did its retries; the same error where the step runs and where it is replayed."""

    def __init__(self, key: str, type: str, message: str) -> None:
        self.key = key
        self.type = type
        """The name of the exception's class."""
        self.message = message
        super().__init__(f"step {key!r} failed: {type}: {message}")


class StepKeyError(TaskLibError, ValueError):
    """Two steps could not be told apart when the function runs again."""


class NonDeterminism(TaskLibError):
    """The code asks for another step than the one recorded under this key; the task is parked, nothing is undone."""

    def __init__(self, key: str, recorded: str, asked: str) -> None:
        self.key = key
        self.recorded = recorded
        self.asked = asked
        super().__init__(
            f"step {key!r} was recorded as {recorded}, and the code now asks for {asked}; give the changed step "
            "another name, or bring the old code back; the task waits for that, or for `tasklib retry`"
        )


class ContextError(TaskLibError, AttributeError, LookupError):
    """There is no running task here, or its context has no such resource or connection."""


class StorageError(TaskLibError):
    """The database refused or failed a statement."""


class DatabaseUnavailable(StorageError):
    """The database cannot be reached, or the connection broke before an answer came."""


class DatabaseReplaced(DatabaseUnavailable):
    """The SQLite file was deleted or replaced while this process had it open."""


class DatabaseBusy(StorageError):
    """Another process held SQLite's write lock for longer than the busy timeout."""


class DatabaseFull(StorageError):
    """The database has no room left; nothing was stored."""


class PermissionDenied(StorageError):
    """The database role may not do this."""


class SchemaError(StorageError):
    """The database's tables do not fit this version of tasklib."""


class SchemaMissing(SchemaError):
    """The tables do not exist yet."""


class SchemaOutdated(SchemaError):
    """The tables are older than this version of tasklib needs."""


class SchemaTooNew(SchemaError):
    """The tables were made for a newer tasklib that this version must not write to."""


class SchemaMismatch(SchemaError):
    """The tables were made by other migrations of the same numbers; nothing was changed."""


class ForeignTable(SchemaError):
    """A table named like one of ours exists and is not ours; it was not touched."""


class ExecutionError(TaskLibError):
    """How an attempt ended without the function's own exception."""


class TaskTimeout(ExecutionError, TimeoutError):
    """The attempt ran past its timeout_seconds."""

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        super().__init__(f"the task ran longer than its timeout of {timeout_seconds:g} s")


class WorkerLost(ExecutionError):
    """The worker stopped sending heartbeats while it held the task."""


class ProcessDied(ExecutionError):
    """The child process of the task was killed, crashed or ended itself while the task ran."""

    def __init__(self, how: str, *, pid: int, code: int) -> None:
        self.pid = pid
        self.code = code
        """As the exit code of a process: negative for the signal that ended it."""
        super().__init__(f"the task's child process {pid} {how}")


class ProcessNotReady(ExecutionError):
    """The child process of the task could not load it."""

    def __init__(self, why: str, *, never: bool = False) -> None:
        super().__init__(f"the task was not started, because its child process {why}")
        self.never = never
        """Whether no other attempt could start either, so that none follows."""


class ResultError(ExecutionError):
    """The result cannot be stored; the task failed for good and is not run again."""


class WorkerStuck(ExecutionError):
    """Too many threads are stuck in timed-out tasks; the worker stopped claiming and drained."""


class Retry(_Picklable):
    """Raised by a task: end this attempt as failed and try again after `delay` (default: the policy's delay).

    Examples:
        >>> @queue.task
        ... def deliver(to: str) -> None:
        ...     raise Retry(delay=30)  # as the server asks
        >>> task_id = deliver.submit("ada")
        >>> queue.process_batch()
        1
        >>> queue.get(task_id).state.value, queue.get(task_id).retry_count
        ('failed', 1)
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "the task asked for a retry") -> None:
        self.delay = None if delay is None else seconds_of(delay)
        super().__init__(reason)


class Snooze(_Picklable):
    """Raised by a task: run again after `delay`; this attempt does not count.

    Examples:
        >>> @queue.task
        ... def deliver(to: str) -> None:
        ...     raise Snooze(delay=60)
        >>> task_id = deliver.submit("ada")
        >>> queue.process_batch()
        1
        >>> queue.get(task_id).state.value, queue.get(task_id).attempts
        ('pending', 0)
    """

    def __init__(self, delay: float | timedelta, reason: str = "the task was snoozed") -> None:
        self.delay = seconds_of(delay)
        super().__init__(reason)


class Abort(_Picklable):
    """Raised by a task: fail for good, whatever attempts remain.

    Examples:
        >>> @queue.task(max_retries=5)
        ... def deliver(to: str) -> None:
        ...     raise Abort(f"no mailbox {to}")
        >>> task_id = deliver.submit("ada")
        >>> queue.process_batch()
        1
        >>> queue.wait(task_id).state.value, queue.wait(task_id).attempts
        ('failed', 1)
    """

    def __init__(self, reason: str = "the task aborted itself") -> None:
        super().__init__(reason)


def seconds_of(delay: float | timedelta) -> float:
    """The delay in seconds; a negative or non-finite one is an error."""
    seconds: Any = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e10:
        raise ConfigurationError(
            f"a delay is a number of seconds or a timedelta, 0 or more and below 1e10; got {delay!r}"
        )
    return float(seconds)
