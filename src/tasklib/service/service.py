"""What every front end shows and does, as plain values: pages of tasks, single and bulk actions, statistics.

The command line uses the blocking form of each method; the async one begins with an `a`, as on TaskQueue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from tasklib.core.insights.explain import Explanation
from tasklib.core.insights.explain import explain as explain_evidence
from tasklib.core.lifecycle import CLEANUP_STATES, Action, states_for
from tasklib.core.queue_info import TaskFilter
from tasklib.core.redaction import MaskLeft
from tasklib.core.task import Task
from tasklib.core.task_id import TaskId
from tasklib.errors import ConfigurationError, InvalidArguments
from tasklib.queue import Id, TaskQueue, require_id
from tasklib.queue.arguments import check_pace, check_priority
from tasklib.queue.change_log import if_any, logged
from tasklib.queue.sync_async import operation
from tasklib.service.administration import Administration
from tasklib.service.audit import AuditEntry, AuditLog
from tasklib.service.error_groups import ErrorGroups
from tasklib.service.findings import Findings
from tasklib.service.insights.lanes import Lanes
from tasklib.service.insights.objectives import Objectives
from tasklib.service.insights.pacing import Pacing
from tasklib.service.pages import TaskPages, required
from tasklib.service.schedules import Schedules
from tasklib.service.statistics import Statistics
from tasklib.service.tokens import Tokens
from tasklib.service.workflows.flows import Flows
from tasklib.service.workflows.replay import Replays
from tasklib.service.workflows.workflows import Workflows
from tasklib.storage.operations import actions, tasks
from tasklib.storage.operations.actions import OnProgress
from tasklib.storage.operations.clock import start_of_age
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.reading.explain import gather_evidence
from tasklib.storage.operations.worker_history import find_releases
from tasklib.storage.statement import Operation
from tasklib.submission import with_secrets


class QueueService(TaskPages):
    """Reads and acts on the tasks of one queue."""

    def __init__(self, queue: TaskQueue) -> None:
        super().__init__(queue)
        self.administration = Administration(queue)
        self.audit_log = AuditLog(queue)
        self.error_groups = ErrorGroups(queue)
        self.findings = Findings(queue)
        self.flows = Flows(queue)
        self.lanes = Lanes(queue)
        self.replays = Replays(queue)
        self.objectives = Objectives(queue)
        self.pacing = Pacing(queue)
        self.schedules = Schedules(queue)
        self.statistics = Statistics(queue)
        self.tokens = Tokens(queue)
        self.workflows = Workflows(queue)

    @operation
    def get(self, task_id: Id) -> Operation[Task]:
        """One task, its secrets hidden; TaskNotFound if there is none of this id."""
        task = yield from required(task_id)
        yield from self.queue.secret_places.learn()
        return self.redactor.task((yield from _with_releases(task)))

    aget = get.as_async

    @operation
    def shown(self, task: Task) -> Operation[Task]:
        """A task that was read elsewhere, its secrets hidden."""
        yield from self.queue.secret_places.learn()
        return self.redactor.task(task)

    ashown = shown.as_async

    @operation
    def act(
        self,
        action: Action,
        task_id: Id,
        *,
        priority: int | None = None,
        from_step: str | None = None,
        from_scratch: bool = False,
        audit: AuditEntry | None = None,
    ) -> Operation[Task]:
        """Act on one task; the task afterwards, or a deleted one as it was.

        A retry with `from_step` forgets that step of a workflow and those after it, with `from_scratch` all.
        """
        yield from self.queue.secret_places.learn()
        retry = partial(actions.retry_task, from_step=from_step, from_scratch=from_scratch)
        work = _act_on_one(action, require_id(task_id), priority, retry)
        return self.redactor.task((yield from self.audited(work, audit)))

    aact = act.as_async

    @operation
    def explain(self, task_id: Id) -> Operation[Explanation]:
        """Why the task is not running, with no secret in the evidence."""
        found = explain_evidence((yield from gather_evidence(require_id(task_id))))
        yield from self.queue.secret_places.learn()
        return replace(self.redactor.explanation(found), task=self.redactor.task(found.task))

    aexplain = explain.as_async

    @operation
    def submit(self, name: str, payload: Any, *, audit: AuditEntry | None = None) -> Operation[TaskId]:
        """Store a task by name, as `TaskQueue.enqueue` does."""
        work = tasks.submit_once(self.queue.new_by_name(name, payload))
        return (yield from self.audited(work, audit, lambda made: {"id": str(made)}))

    asubmit = submit.as_async

    @operation
    def resubmit(
        self, task_id: Id, payload: Any, *, priority: int | None = None, audit: AuditEntry | None = None
    ) -> Operation[TaskId]:
        """Store a copy of this task with another payload, in which a mask stands for the stored secret."""
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
        work = tasks.submit_once(new)
        return (yield from self.audited(work, audit, lambda made: {"id": str(made.id)}))

    aresubmit = resubmit.as_async

    @operation
    def act_on_matching(
        self,
        action: Action,
        which: TaskFilter,
        *,
        priority: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        audit: AuditEntry | None = None,
    ) -> Operation[int]:
        """Act on every matching task in a state that allows it; how many were changed, or with `dry_run` would be.

        Retried tasks come due `rate` in a second; without one all at once.
        """
        pace = None if check_pace(rate) is None else actions.Pace(float(rate or 0))
        chosen = replace(which, states=states_for(action, which.states))
        if action is Action.PRIORITIZE:
            priority = _given(priority)

        def act(chosen: TaskFilter, before: int = 0) -> Operation[int]:
            if dry_run:
                return (yield from actions.count_matching(action, chosen))
            report = _progress_from(on_progress, before)
            how: Any = {"priority": priority, "pace": pace, "on_progress": report}
            return (yield from actions.act_on_matching(action, chosen, **how))

        if self.is_judged(chosen):
            work = self.each_shown(chosen, lambda ids, before: act(replace(chosen, ids=ids), before))
        else:
            work = act(chosen)
        if not dry_run:
            work = logged(work, "act_on_matching", added=if_any, action=action.value, type=which.name, rate=rate)
        return (yield from self.audited(work, audit, lambda changed: {"changed": changed}))

    aact_on_matching = act_on_matching.as_async

    @operation
    def cleanup(
        self,
        older_than: datetime | timedelta,
        states: Sequence[str] = CLEANUP_STATES,
        *,
        name: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        audit: AuditEntry | None = None,
    ) -> Operation[int]:
        """Delete tasks that ended before a moment, or longer ago than a time; how many, or with `dry_run` would be."""
        moment = yield from start_of_age(older_than)
        if dry_run:
            which = TaskFilter(states=states_for(Action.DELETE, states), name=name, completed_before=moment)
            return (yield from lists.count_tasks(which))
        work = logged(actions.cleanup_tasks(moment, states, name, on_progress), "clean_up", added=if_any, type=name)
        return (yield from self.audited(work, audit, lambda deleted: {"deleted": deleted}))

    acleanup = cleanup.as_async


def as_data(value: Any) -> Any:
    """The value in JSON types: objects by their Python field names, times in ISO-8601 with Z, ids as text."""
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


def _with_releases(task: Task) -> Operation[Task]:
    """The task with the releases that its attempts ran: a failed one has it recorded, others by their worker."""
    unknown = {each.worker_id for each in task.history if each.release is None and each.worker_id is not None}
    if not unknown:
        return task
    found = yield from find_releases(unknown)
    history = tuple(
        each
        if each.release is not None
        else replace(each, release=next((known.release for known in found if known.ran(each)), None))
        for each in task.history
    )
    return replace(task, history=history)


def _act_on_one(
    action: Action, task_id: UUID, priority: int | None, retry: Callable[[UUID], Operation[Task]]
) -> Operation[Task]:
    match action:
        case Action.RETRY:
            return (yield from retry(task_id))
        case Action.CANCEL:
            return (yield from actions.cancel_task(task_id))
        case Action.PRIORITIZE:
            return (yield from actions.set_priority(task_id, _given(priority)))
        case Action.DELETE:
            return (yield from actions.delete_task(task_id))


def _given(priority: int | None) -> int:
    if priority is None:
        raise ConfigurationError("prioritize needs a priority, got None")
    return check_priority(priority)


def _progress_from(on_progress: OnProgress | None, before: int) -> OnProgress | None:
    return on_progress if on_progress is None or not before else lambda done: on_progress(before + done)
