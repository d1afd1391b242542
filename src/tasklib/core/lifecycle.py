"""The life of a task as two tables: which event may happen in which phase, and what people may do to tasks.  Pure.

A phase is a stored state, with `failed` split in two: RETRYING (next_retry_at is set) and FAILED (completed_at is set).
The guarded statements in `storage/` enforce both tables, `docs/lifecycle.md` shows them, and tests compare all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

from tasklib.core.task import Task, TaskState
from tasklib.errors import ConfigurationError, InvalidTransition


class Phase(StrEnum):
    """A state as the lifecycle sees it."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BURIED = "buried"

    @property
    def state(self) -> TaskState:
        """The state that is stored for it."""
        return TaskState.FAILED if self is Phase.RETRYING else TaskState(self.value)


class Event(StrEnum):
    """What can happen to a task."""

    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY_LATER = "retry_later"
    GIVE_UP = "give_up"
    SNOOZE = "snooze"
    RELEASE = "release"
    SUSPEND = "suspend"
    RESTART = "restart"
    CANCEL = "cancel"
    EXPIRE = "expire"
    LOSE = "lose"
    BURY = "bury"
    RETRY = "retry"
    REPLACE = "replace"
    DELETE = "delete"


TRANSITIONS: Final[Mapping[tuple[Phase, Event], Phase | None]] = MappingProxyType(
    {
        (Phase.PENDING, Event.CLAIM): Phase.RUNNING,
        (Phase.RETRYING, Event.CLAIM): Phase.RUNNING,
        (Phase.RUNNING, Event.COMPLETE): Phase.COMPLETED,
        (Phase.RUNNING, Event.RETRY_LATER): Phase.RETRYING,
        (Phase.RUNNING, Event.GIVE_UP): Phase.FAILED,
        (Phase.RUNNING, Event.SNOOZE): Phase.PENDING,
        (Phase.RUNNING, Event.RELEASE): Phase.PENDING,  # or RETRYING, where the last attempt failed
        (Phase.RUNNING, Event.SUSPEND): Phase.PENDING,  # with `waits_for`; or CANCELLED, where a person asked for it
        (Phase.RUNNING, Event.RESTART): Phase.PENDING,  # with no steps; or CANCELLED, where a person asked for it
        (Phase.RUNNING, Event.LOSE): Phase.PENDING,
        (Phase.RUNNING, Event.BURY): Phase.BURIED,
        (Phase.PENDING, Event.CANCEL): Phase.CANCELLED,
        (Phase.RETRYING, Event.CANCEL): Phase.CANCELLED,
        (Phase.RUNNING, Event.CANCEL): Phase.CANCELLED,
        (Phase.PENDING, Event.EXPIRE): Phase.CANCELLED,
        (Phase.RETRYING, Event.EXPIRE): Phase.CANCELLED,
        (Phase.RETRYING, Event.RETRY): Phase.PENDING,
        (Phase.FAILED, Event.RETRY): Phase.PENDING,
        (Phase.CANCELLED, Event.RETRY): Phase.PENDING,
        (Phase.BURIED, Event.RETRY): Phase.PENDING,
        (Phase.COMPLETED, Event.RETRY): Phase.PENDING,
        (Phase.PENDING, Event.REPLACE): Phase.PENDING,
        (Phase.RETRYING, Event.REPLACE): Phase.PENDING,
        (Phase.COMPLETED, Event.DELETE): None,
        (Phase.FAILED, Event.DELETE): None,
        (Phase.CANCELLED, Event.DELETE): None,
        (Phase.BURIED, Event.DELETE): None,
    }
)
"""The legal transitions; None is "the row is gone".  Every pair that is not here is refused."""

WAITING: Final = frozenset({Phase.PENDING, Phase.RETRYING})
LIVE: Final = WAITING | {Phase.RUNNING}
TERMINAL: Final = frozenset(Phase) - LIVE


def phase_of(task: Task) -> Phase:
    """The phase of a task as read."""
    if task.state is TaskState.FAILED:
        return Phase.RETRYING if task.next_retry_at is not None else Phase.FAILED
    return Phase(task.state.value)


def allowed(phase: Phase, event: Event) -> bool:
    """Whether the event may happen in the phase."""
    return (phase, event) in TRANSITIONS


def _where(event: Event) -> tuple[Phase, ...]:
    return tuple(phase for phase in Phase if allowed(phase, event))


class Action(StrEnum):
    """What a person can do to tasks, one or many."""

    RETRY = "retry"
    CANCEL = "cancel"
    PRIORITIZE = "prioritize"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ActionRule:
    """To which tasks an action can be done."""

    possible: tuple[Phase, ...]
    by_default: tuple[Phase, ...]
    """Which tasks are meant where a bulk action names no state: never completed or cancelled ones."""
    remedy: str | None = None
    """What to do about a task that does not allow it."""


_LIVE: Final = (Phase.PENDING, Phase.RUNNING, Phase.RETRYING)

ACTIONS: Final[Mapping[Action, ActionRule]] = MappingProxyType(
    {
        Action.RETRY: ActionRule(_where(Event.RETRY), (Phase.RETRYING, Phase.FAILED, Phase.BURIED)),
        Action.CANCEL: ActionRule(_where(Event.CANCEL), _LIVE),
        Action.PRIORITIZE: ActionRule(_LIVE, _LIVE),
        Action.DELETE: ActionRule(_where(Event.DELETE), (Phase.FAILED, Phase.BURIED), "cancel first"),
    }
)
"""What people may do to tasks in which phases, for the queue, the command line, HTTP and the dashboard alike."""

CLEANUP_STATES: Final = (TaskState.COMPLETED,)
"""What a clean-up removes by default; it can remove whatever can be deleted."""


def allows(task: Task, action: Action) -> bool:
    """Whether the task allows the action as it is now; a parked workflow can be retried although it waits."""
    return phase_of(task) in ACTIONS[action].possible or (action is Action.RETRY and is_parked(task))


def is_parked(task: Task) -> bool:
    """Whether it is a workflow that waits for other code: a person may resume it by a retry."""
    return task.waits_for is not None and task.waits_for.startswith("code")


def states_for(action: Action, asked: Iterable[str] = ()) -> tuple[str, ...]:
    """The states that a bulk action is about: those asked for, else its default; one that never allows it is an error.

    One can also ask for `delayed`, pending tasks whose time has not come, and `waiting`, those that are suspended.
    """
    rule, states = ACTIONS[action], tuple(map(str, asked))
    wrong = [
        state for state in states if ("pending" if state in ("delayed", "waiting") else state) not in rule.possible
    ]
    if wrong:
        raise ConfigurationError(
            f"{action} is not possible for {', '.join(wrong)} tasks, only for {', '.join(rule.possible)} ones"
            + (f"; {rule.remedy}" if rule.remedy else "")
        )
    return states or rule.by_default


def refusal(action: Action, task: Task) -> InvalidTransition:
    """The error that says why the task does not allow the action."""
    rule = ACTIONS[action]
    return InvalidTransition(task.id, phase_of(task), action, ", ".join(rule.possible), rule.remedy)


@dataclass(frozen=True, slots=True)
class Effect:
    """What the end of an attempt does to the row."""

    state: TaskState
    terminal: bool
    refund: int
    """Attempts restored: a snoozed or released attempt was not spent."""
    retried: int
    """Added to retry_count."""


EFFECTS: Final[Mapping[Event, Effect]] = MappingProxyType(
    {
        Event.RETRY_LATER: Effect(TaskState.FAILED, terminal=False, refund=0, retried=1),
        Event.GIVE_UP: Effect(TaskState.FAILED, terminal=True, refund=0, retried=0),
        Event.SNOOZE: Effect(TaskState.PENDING, terminal=False, refund=1, retried=0),
        Event.RELEASE: Effect(TaskState.PENDING, terminal=False, refund=1, retried=0),
        Event.SUSPEND: Effect(TaskState.PENDING, terminal=False, refund=1, retried=0),
        Event.RESTART: Effect(TaskState.PENDING, terminal=False, refund=0, retried=0),
        Event.LOSE: Effect(TaskState.PENDING, terminal=False, refund=0, retried=1),
        Event.CANCEL: Effect(TaskState.CANCELLED, terminal=True, refund=0, retried=0),
        Event.BURY: Effect(TaskState.BURIED, terminal=True, refund=0, retried=0),
    }
)
"""The ways an attempt can end other than in success."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt ended, other than in success; make it with one of the named constructors."""

    task_id: str
    version: int
    event: Event
    delay: float | None = None
    error: str | None = None
    outcome: str | None = None
    started: float | None = None
    """When the work really began and ended, on the process's monotonic clock; None if it never began."""
    ended: float | None = None
    progress: tuple[float, str | None] | None = None
    """The last report of its progress, kept where the task ends for good."""
    waits_for: str | None = None
    """What a workflow that suspends itself waits for."""
    waits_on: tuple[str, ...] = ()
    """The open steps that it waits on: once one of them is filled, it is due."""
    reopen: str | None = None
    """The step whose failure ended the attempt: the next attempt runs it again."""
    arguments: str | None = None
    """The arguments with which the task continues as new, as JSON text."""
    unasked: tuple[str, ...] = ()
    """Waits of earlier code that this attempt has not asked for: their messages are for those that it waits on."""

    def redacted(self, redact: Callable[[str | None], str | None]) -> Self:
        """The same without the secrets that its error quotes."""
        return self if self.error is None else replace(self, error=redact(self.error))

    @classmethod
    def retry_later(cls, task_id: str, version: int, *, delay: float, error: str, outcome: str = "failed") -> Self:
        """The attempt failed and another follows after `delay` seconds."""
        return cls(task_id, version, Event.RETRY_LATER, delay=delay, error=error, outcome=outcome)

    @classmethod
    def give_up(cls, task_id: str, version: int, *, error: str, outcome: str = "failed") -> Self:
        """The attempt failed and none follows."""
        return cls(task_id, version, Event.GIVE_UP, error=error, outcome=outcome)

    @classmethod
    def bury(cls, task_id: str, version: int, *, error: str, outcome: str = "crashed") -> Self:
        """The attempt killed its process, or lost its worker, and none follows."""
        return cls(task_id, version, Event.BURY, error=error, outcome=outcome)

    @classmethod
    def snooze(cls, task_id: str, version: int, *, delay: float) -> Self:
        """The task asked to run later; the attempt is not spent."""
        return cls(task_id, version, Event.SNOOZE, delay=delay)

    @classmethod
    def release(cls, task_id: str, version: int) -> Self:
        """The worker releases the task, not started or stopped by a shutdown; the attempt is not spent."""
        return cls(task_id, version, Event.RELEASE)

    @classmethod
    def suspend(
        cls,
        task_id: str,
        version: int,
        *,
        waits_for: str,
        delay: float | None,
        on: tuple[str, ...] = (),
        unasked: tuple[str, ...] = (),
    ) -> Self:
        """The workflow waits, at most `delay` seconds, without a slot; the attempt is not spent."""
        return cls(task_id, version, Event.SUSPEND, delay=delay, waits_for=waits_for, waits_on=on, unasked=unasked)

    @classmethod
    def park(cls, task_id: str, version: int, *, waits_for: str, error: str) -> Self:
        """The workflow waits for other code, or for a person; the attempt is not spent."""
        return cls(task_id, version, Event.SUSPEND, error=error, outcome="parked", waits_for=waits_for)

    @classmethod
    def restart(cls, task_id: str, version: int, *, arguments: str) -> Self:
        """The task continues as new with these arguments: no steps, attempts and retries from zero."""
        return cls(task_id, version, Event.RESTART, outcome="restarted", arguments=arguments)

    @classmethod
    def lose(cls, task_id: str, version: int, *, delay: float | None = None, error: str, outcome: str = "lost") -> Self:
        """The worker vanished, and another attempt follows, at once or after `delay` seconds."""
        return cls(task_id, version, Event.LOSE, delay=delay, error=error, outcome=outcome)

    @classmethod
    def cancel(cls, task_id: str, version: int, *, error: str | None = None, outcome: str = "cancelled") -> Self:
        """A person asked for it and the work has ended."""
        return cls(task_id, version, Event.CANCEL, error=error, outcome=outcome)

    def between(self, started: float | None, ended: float | None) -> Self:
        """The same ending with the time the work really took."""
        return replace(self, started=started, ended=ended)
