"""What every front end shows and does, as plain values: pages of tasks, actions one by one or in bulk, numbers.

The command line uses the blocking form of each method; the awaiting one has an `a` in front, as on TaskQueue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from tasklib.core.controls import Pause
from tasklib.core.error_text import summary
from tasklib.core.explain import Explanation
from tasklib.core.explain import explain as explain_evidence
from tasklib.core.lifecycle import CLEANUP_STATES, Action, states_for
from tasklib.core.redaction import MaskLeft
from tasklib.core.task import ErrorGroup, QueueStats, Task, TaskFilter, TaskId
from tasklib.errors import ConfigurationError, InvalidArguments
from tasklib.queue import Id, TaskQueue, require_id
from tasklib.queue.arguments import check_priority
from tasklib.queue.sync_async import operation
from tasklib.service.administration import Administration
from tasklib.service.pages import TaskPages, required
from tasklib.service.tokens import Tokens
from tasklib.storage.operations import actions, controls, errors, lists, statistics, tasks, workers
from tasklib.storage.operations.actions import Told
from tasklib.storage.operations.clock import start_of_age
from tasklib.storage.operations.explain import gather_evidence
from tasklib.storage.operations.statistics import Depth, Work
from tasklib.storage.statement import Operation
from tasklib.submission import with_secrets


@dataclass(frozen=True, slots=True)
class Overview:
    """The queue at a glance."""

    stats: QueueStats
    pauses: tuple[Pause, ...]
    workers_alive: int


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """One kind of task: how many stand where, and who works on it."""

    name: str
    pending: int
    delayed: int
    running: int
    completed: int
    failed: int
    retrying: int
    cancelled: int
    buried: int
    workers: int
    """Live workers that know the name."""
    paused: bool


@dataclass(frozen=True, slots=True)
class Series:
    """What was done and how deep the queue was, in steps of equal length."""

    step: int
    points: tuple[tuple[int, Work | None, Depth | None], ...]
    """When each began, in seconds since 1970; None where nothing was done, or nobody looked."""


class QueueService(TaskPages):
    """Reads and acts on the tasks of one queue."""

    def __init__(self, queue: TaskQueue) -> None:
        super().__init__(queue)
        self.administration = Administration(queue)
        self.tokens = Tokens(queue)

    @operation
    def get(self, task_id: Id) -> Operation[Task]:
        """One task, its secrets hidden; TaskNotFound if there is none of this id."""
        task = yield from required(task_id)
        yield from self.queue.secret_places.learn()
        return self.redactor.task(task)

    aget = get.twin

    @operation
    def act(self, action: Action, task_id: Id, *, priority: int | None = None) -> Operation[Task]:
        """Do it to one task: the task as it is then, or a deleted one as it was."""
        yield from self.queue.secret_places.learn()
        task = yield from _act_on_one(action, require_id(task_id), priority, self.queue.clock.now())
        return self.redactor.task(task)

    aact = act.twin

    @operation
    def explain(self, task_id: Id) -> Operation[Explanation]:
        """Why the task is not running, with no secret in the evidence."""
        found = explain_evidence((yield from gather_evidence(require_id(task_id), self.queue.clock.now())))
        yield from self.queue.secret_places.learn()
        return replace(self.redactor.explanation(found), task=self.redactor.task(found.task))

    aexplain = explain.twin

    @operation
    def resubmit(self, task_id: Id, payload: Any, *, priority: int | None = None) -> Operation[TaskId]:
        """Store a new task like this one with another payload; where the mask was left, the stored secret is used."""
        task = yield from required(task_id)
        yield from self.queue.secret_places.learn()
        marked = self.redactor.secrets(task)
        try:
            restored = self.redactor.restore(payload, task.kwargs, marked)
        except MaskLeft as error:
            raise InvalidArguments(task.name, [str(error)]) from error
        new = self.queue.new_by_name(
            task.name,
            restored,
            priority=task.priority if priority is None else priority,
            tags=task.tags,
            timeout_seconds=task.timeout_seconds,
            max_retries=task.max_retries,
            concurrency_key=task.concurrency_key,
        )
        new = with_secrets(new, marked)
        return (yield from tasks.submit_once(new, self.queue.clock.now()))

    aresubmit = resubmit.twin

    @operation
    def act_on_matching(
        self,
        action: Action,
        which: TaskFilter,
        *,
        priority: int | None = None,
        dry_run: bool = False,
        told: Told | None = None,
    ) -> Operation[int]:
        """Do it to every matching task in a state that allows it; how many it was, or with `dry_run` would be."""
        chosen, now = replace(which, states=states_for(action, which.states)), self.queue.clock.now()
        if action is Action.PRIORITIZE:
            priority = _given(priority)

        def act(chosen: TaskFilter, before: int = 0) -> Operation[int]:
            if dry_run:
                return (yield from actions.count_matching(action, chosen, now))
            said = _told_from(told, before)
            return (yield from actions.act_on_matching(action, chosen, now, priority=priority, told=said))

        if not self.is_judged(chosen):
            return (yield from act(chosen))
        return (yield from self.each_shown(chosen, lambda ids, before: act(replace(chosen, ids=ids), before)))

    aact_on_matching = act_on_matching.twin

    @operation
    def errors(self, name: str | None = None, *, limit: int = 100) -> Operation[tuple[ErrorGroup, ...]]:
        """What went wrong, grouped by name and kind of error, the latest first."""
        return (yield from self._shown_errors((yield from errors.list_errors(name, limit))))

    aerrors = errors.twin

    @operation
    def find_error_group(self, group_id: str) -> Operation[ErrorGroup | None]:
        """The group with this id, as `redrive` takes it; its texts are as they are stored."""
        groups = yield from errors.list_errors(None, errors.MOST_GROUPS)
        return next((each for each in groups if each.id == group_id), None)

    afind_error_group = find_error_group.twin

    @operation
    def shown_errors(self, groups: Sequence[ErrorGroup]) -> Operation[tuple[ErrorGroup, ...]]:
        """The groups without the secrets that their messages and fingerprints may quote."""
        return (yield from self._shown_errors(groups))

    ashown_errors = shown_errors.twin

    def _shown_errors(self, groups: Sequence[ErrorGroup]) -> Operation[tuple[ErrorGroup, ...]]:
        shown: list[ErrorGroup] = []
        yield from self.queue.secret_places.learn()
        for group in groups:
            # What is secret is known only by the arguments of the task whose message it is.
            task = yield from tasks.get_task(group.example)
            if task is None:
                shown.append(replace(group, message=""))
                continue
            hide = self.redactor.texts_of(task)
            message = summary(hide.text(task.error) or "")
            shown.append(replace(group, message=message, fingerprint=hide.text(group.fingerprint)))
        return tuple(shown)

    @operation
    def cleanup(
        self,
        older_than: datetime | timedelta,
        states: Sequence[str] = CLEANUP_STATES,
        *,
        name: str | None = None,
        dry_run: bool = False,
        told: Told | None = None,
    ) -> Operation[int]:
        """Remove tasks that ended before a moment, or that long ago; how many it was, or with `dry_run` would be."""
        now = self.queue.clock.now()
        moment = yield from start_of_age(older_than, now)
        if dry_run:
            which = TaskFilter(states=states_for(Action.DELETE, states), name=name, completed_before=moment)
            return (yield from lists.count_tasks(which, now))
        return (yield from actions.cleanup_tasks(moment, states, name, told))

    acleanup = cleanup.twin

    @operation
    def overview(self, stats: QueueStats | None = None) -> Operation[Overview]:
        """How many tasks stand where, what is paused, and how many workers are there."""
        now = self.queue.clock.now()
        stats = stats or (yield from statistics.count_tasks_by_state(now))
        pauses = yield from controls.list_pauses()
        known = yield from workers.list_workers(now)
        return Overview(stats, tuple(pauses), sum(worker.alive for worker in known))

    aoverview = overview.twin

    @operation
    def types(self, stats: QueueStats | None = None) -> Operation[tuple[TypeInfo, ...]]:
        """Every kind of task that is stored or that a worker knows, by name."""
        now = self.queue.clock.now()
        stats = stats or (yield from statistics.count_tasks_by_state(now))
        known = yield from workers.list_workers(now)
        pauses = yield from controls.list_pauses()
        workers_of = Counter(name for worker in known if worker.alive for name in set(worker.names))
        paused = {pause.name for pause in pauses}
        names = {*stats.by_name, *(name for worker in known for name in worker.names)}
        return tuple(_type_info(name, stats, workers_of[name], paused) for name in sorted(names))

    atypes = types.twin

    @operation
    def series(self, *, seconds: int, step: int, name: str | None = None) -> Operation[Series]:
        """What was done and how deep the queue was, step by step, in the last so many seconds; nothing is left out."""
        clock = yield from statistics.read_time(self.queue.clock.now())
        until = clock // step * step + step
        since = until - max(1, -(-seconds // step)) * step
        done = yield from statistics.read_work(since=since, until=until, step=step, name=name)
        deep = yield from statistics.read_depths(since=since, until=until, step=step, name=name)
        work, depths = {each.at: each for each in done}, {each.at: each for each in deep}
        points = [(at, work.get(at), depths.get(at)) for at in range(since, until, step)]
        return Series(step, tuple(points))

    aseries = series.twin

    @operation
    def work_by_type(self, *, seconds: int) -> Operation[tuple[Work, ...]]:
        """What was done of each kind of task in the last so many seconds, by name."""
        clock = yield from statistics.read_time(self.queue.clock.now())
        since = (clock - seconds) // 60 * 60
        # One step for the whole time: no moment is a multiple of more.
        found = yield from statistics.read_work(since=since, until=clock + 60, step=_WHOLE, by_name=True)
        return tuple(sorted(found, key=lambda each: each.name))

    awork_by_type = work_by_type.twin


def as_data(value: Any) -> Any:
    """The value as JSON knows it: objects by their Python field names, times in ISO-8601 with Z, ids as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID | StrEnum):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_data(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(entry) for entry in value]
    return value


def _act_on_one(action: Action, task_id: UUID, priority: int | None, now: datetime | None) -> Operation[Task]:
    match action:
        case Action.RETRY:
            return (yield from actions.retry_task(task_id, now))
        case Action.CANCEL:
            return (yield from actions.cancel_task(task_id, now))
        case Action.PRIORITIZE:
            return (yield from actions.set_priority(task_id, _given(priority), now))
        case Action.DELETE:
            return (yield from actions.delete_task(task_id))


def _given(priority: int | None) -> int:
    if priority is None:
        raise ConfigurationError("prioritize needs the priority that the tasks shall have, got None")
    return check_priority(priority)


def _told_from(told: Told | None, before: int) -> Told | None:
    return told if told is None or not before else lambda done: told(before + done)


def _type_info(name: str, stats: QueueStats, workers_alive: int, paused: Collection[str | None]) -> TypeInfo:
    counts = stats.by_name.get(name, {})
    return TypeInfo(
        name=name,
        pending=counts.get("pending", 0),
        delayed=counts.get("delayed", 0),
        running=counts.get("running", 0),
        completed=counts.get("completed", 0),
        failed=counts.get("failed", 0),
        retrying=counts.get("retrying", 0),
        cancelled=counts.get("cancelled", 0),
        buried=counts.get("buried", 0),
        workers=workers_alive,
        paused=None in paused or name in paused,
    )


_WHOLE: Final = 1 << 40
