"""Workflows as front ends see them: their steps, children and questions; emitting events and answering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tasklib.core.insights.timeline import TimelineEntry, timeline
from tasklib.core.task import Task
from tasklib.queue import Id, require_id
from tasklib.queue.change_log import if_done
from tasklib.queue.methods.controlling import budget_values
from tasklib.queue.sync_async import operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.limits import budgets
from tasklib.storage.operations.limits.budgets import Taken
from tasklib.storage.operations.tasks import get_task, require_task
from tasklib.storage.operations.workflows import events, groups
from tasklib.storage.operations.workflows.steps import StepInfo, list_steps
from tasklib.storage.statement import Operation

__all__ = ["StepInfo", "Taken", "TimelineEntry", "Workflows"]


class Workflows(ServicePart):
    """Steps, events and questions of one queue."""

    @operation
    def steps(self, task_id: Id) -> Operation[Sequence[StepInfo]]:
        """What a task has recorded, in its order, with secrets hidden; TaskNotFound if there is none."""
        task = yield from require_task(require_id(task_id))
        return (yield from self._steps(task))

    asteps = steps.as_async

    @operation
    def timeline(self, task_id: Id) -> Operation[Sequence[TimelineEntry]]:
        """What has happened to a task, the earliest first, with secrets hidden."""
        task = yield from require_task(require_id(task_id))
        steps = yield from self._steps(task)
        return timeline(self.redactor.task(task), steps)

    atimeline = timeline.as_async

    def _steps(self, task: Task) -> Operation[list[StepInfo]]:
        """The steps as they may be shown: without what is a secret argument of the task, wherever it stands."""
        yield from self.queue.secret_places.learn()
        found = yield from list_steps(task.id)
        hide = self.redactor.texts_of(task)

        def to_show(step: StepInfo) -> StepInfo:
            value, error = (hide.everywhere(self.redactor.value(each)) for each in (step.value, step.error))
            # The key of a question stays as it is, because whoever answers it must give it.
            key = step.key if step.kind == "ask" else hide.text(step.key) or ""
            return replace(
                step, key=key, value=value, error=error, question=hide.text(step.question), note=hide.text(step.note)
            )

        return [to_show(step) for step in found]

    @operation
    def now(self) -> Operation[datetime]:
        """The database's time."""
        return (yield from read_clock())

    anow = now.as_async

    @operation
    def tree(self, task_id: Id) -> Operation[dict[str, Any]]:
        """The parent of a task, the tasks before it, and its children."""
        task = yield from require_task(require_id(task_id))
        found = yield from groups.show_tree(task.id)
        hide = self.redactor.texts_of(task).text
        children = [{**group, "key": hide(group["key"])} for group in found["groups"]]
        waits_for = hide(task.waits_for)
        return {
            "id": task.id,
            "name": task.name,
            "state": task.state,
            "waits_for": waits_for,
            **found,
            "groups": children,
        }

    atree = tree.as_async

    @operation
    def questions(self, *, limit: int = 100) -> Operation[Sequence[dict[str, Any]]]:
        """Open questions to people, the oldest first, with secrets hidden."""
        yield from self.queue.secret_places.learn()
        found = yield from events.list_questions(limit)
        for question in found:
            task = yield from get_task(question["task_id"])
            if task is not None:
                question["question"] = self.redactor.texts_of(task).text(question["question"])
        return found

    aquestions = questions.as_async

    @operation
    def emit(
        self, name: str, payload: Any, *, to: Id | None = None, by: str | None = None, audit: AuditEntry | None = None
    ) -> Operation[bool]:
        """Emit an event to every task that waits for it, or to one; False if a fact of this name was known already."""
        text = events.event_text(events.check_event(name), payload)
        target = None if to is None else require_id(to)
        work = events.emit(name, text, target, by)
        emitted = yield from self.audited(work, audit, lambda number: {"new": number is not None})
        return emitted is not None

    aemit = emit.as_async

    @operation
    def deliver(self) -> Operation[int]:
        """Give new events to those who wait for them; a worker does it too, a moment later."""
        return (yield from events.deliver_new())

    adeliver = deliver.as_async

    @operation
    def withdraw(self, name: str, *, audit: AuditEntry | None = None) -> Operation[bool]:
        """Forget a fact; False if there is none."""
        return (yield from self.audited(events.withdraw(events.check_event(name)), audit, if_done))

    awithdraw = withdraw.as_async

    @operation
    def spend(self, name: str, cost: float, *, audit: AuditEntry | None = None) -> Operation[Taken]:
        """Take tokens from a budget if there are enough; else the answer says how many are missing and for how long."""
        return (yield from self.audited(budgets.take(name, cost), audit, lambda taken: {} if taken.taken else None))

    aspend = spend.as_async

    @operation
    def set_budget(
        self,
        name: str,
        *,
        per_minute: float | None = None,
        per_second: float | None = None,
        burst: float | None = None,
        audit: AuditEntry | None = None,
    ) -> Operation[None]:
        """Set a budget as `TaskQueue.set_budget` does, or remove it."""
        work = budgets.set_budget(name, *budget_values(name, per_minute, per_second, burst))
        # A change is committed with its audit entry before it wakes the waiting tasks: the end writes no second entry.
        yield from self.audited(work, audit, lambda changed: None if changed else {})

    aset_budget = set_budget.as_async

    @operation
    def answer(
        self, task_id: Id, key: str, value: Any, *, by: str | None = None, audit: AuditEntry | None = None
    ) -> Operation[None]:
        """Answer a question; the first answer counts."""
        work = events.answer_question(require_id(task_id), key, value, by)
        yield from self.audited(work, audit)

    aanswer = answer.as_async
