"""Schedules for front ends: without secrets, and with entries in the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tasklib.core.schedule import Plan, Schedule
from tasklib.core.task_id import TaskId
from tasklib.definition import check_name
from tasklib.queue.change_log import if_done
from tasklib.queue.sync_async import as_operation, operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import Addition, ServicePart
from tasklib.storage.operations import schedules
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.statement import Operation


class Schedules(ServicePart):
    """The schedules of one queue."""

    @operation
    def all(self) -> Operation[Sequence[Schedule]]:
        """Every schedule, by name."""
        yield from self.queue.secret_places.learn()
        return [self.redactor.schedule(each) for each in (yield from schedules.list_schedules())]

    aall = all.as_async

    @operation
    def get(self, name: str) -> Operation[Schedule | None]:
        """The schedule of this name, or None."""
        yield from self.queue.secret_places.learn()
        stored = yield from schedules.get_schedule(name)
        return None if stored is None else self.redactor.schedule(stored)

    aget = get.as_async

    @operation
    def preview(self, cron: str, tz: str) -> Operation[Sequence[datetime]]:
        """The next runs of a cron expression, by the database's clock; ConfigurationError if it is none."""
        plan = Plan(name="preview", task="preview", cron=cron, tz=tz)
        return plan.upcoming(plan.next_run((yield from read_clock())))

    apreview = preview.as_async

    @operation
    def put(self, name: str, keywords: Mapping[str, Any], *, audit: AuditEntry | None = None) -> Operation[Schedule]:
        """Create a schedule, or change the one of that name; `keywords` are the keywords of `TaskQueue.add_schedule`.

        A mask in the arguments stands for the stored secret; MaskLeft if the same task has none there.
        """
        check_name(name)  # before the query: not every text can be sent
        yield from self.queue.secret_places.learn()
        task, secrets = keywords["task"], list(self.queue.secret_places.of(keywords["task"]))
        stored = yield from schedules.get_schedule(name)
        if stored is not None:
            # A schedule for another task gets none of these secrets.
            kept = stored.plan.kwargs if stored.plan.task == task else None
            if stored.plan.task == task:
                secrets = list(dict.fromkeys((*secrets, *(stored.plan.secrets or ()))))
            keywords = {**keywords, "kwargs": self.redactor.restore(keywords["kwargs"], kept, secrets)}
        given: dict[str, Any] = {**keywords, "secrets": secrets}
        work = as_operation(self.queue.add_schedule)(name, **given)
        return self.redactor.schedule((yield from self.audited(work, audit)))

    aput = put.as_async

    @operation
    def remove(self, name: str, *, audit: AuditEntry | None = None) -> Operation[bool]:
        """Delete a schedule; tasks it has submitted stay.  False if there is none of that name."""
        return (yield from self.audited(as_operation(self.queue.remove_schedule)(name), audit, if_done))

    aremove = remove.as_async

    @operation
    def pause(self, name: str, *, by: str | None, audit: AuditEntry | None = None) -> Operation[bool]:
        """Pause a schedule: no more ticks run; False if there is none of that name."""
        return (yield from self.audited(as_operation(self.queue.pause_schedule)(name, by=by), audit, if_done))

    apause = pause.as_async

    @operation
    def resume(self, name: str, *, audit: AuditEntry | None = None) -> Operation[bool]:
        """Resume a schedule, from its next tick on; False if there is none of that name."""
        return (yield from self.audited(as_operation(self.queue.resume_schedule)(name), audit, if_done))

    aresume = resume.as_async

    @operation
    def run(self, name: str, *, audit: AuditEntry | None = None) -> Operation[TaskId | None]:
        """Submit a task of the schedule now, beside its ticks; None if there is none of that name."""
        return (yield from self.audited(as_operation(self.queue.run_schedule)(name), audit, _made))

    arun = run.as_async


def _made(task_id: TaskId | None) -> Addition:
    return None if task_id is None else {"id": str(task_id.id)}
