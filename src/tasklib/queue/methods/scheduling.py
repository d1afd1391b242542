"""Repeated tasks: declared in code or made at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, Unpack

from tasklib.core.codec import plain
from tasklib.core.redaction import marked_paths
from tasklib.core.schedule import Misfire, Overlap, Plan, Schedule
from tasklib.core.task import NewTask
from tasklib.core.task_id import TaskId
from tasklib.definition import TaskOptions, check_name, secrets_of
from tasklib.errors import ConfigurationError, TaskDefinitionError
from tasklib.queue.change_log import if_done, logged
from tasklib.queue.methods.submitting import NO_PAYLOAD, UNDECIDED, SubmitsTasks
from tasklib.queue.sync_async import operation
from tasklib.storage.operations import schedules
from tasklib.storage.operations.schedules import Declared
from tasklib.storage.statement import Operation
from tasklib.submission import SubmitOptions, TaskFunction, with_secrets

P = ParamSpec("P")
R = TypeVar("R")


class Scheduling(TypedDict, total=False):
    """The other options of a schedule."""

    misfire: Misfire
    overlap: Overlap
    jitter: float
    starts_at: datetime | None
    ends_at: datetime | None
    options: Mapping[str, Any]
    secrets: Sequence[str] | None


class KeepsSchedules(SubmitsTasks):
    """Schedules and their ticks."""

    def schedule(self, **decided: Any) -> Callable[[TaskFunction[P, R]], TaskFunction[P, R]]:
        """Run a task again and again: `@queue.schedule(cron="0 9 * * mon-fri", tz="Europe/Paris")` over `@queue.task`.

        The schedule is made, changed and removed with the code, by the workers that run it.

        Examples:
            >>> @queue.schedule(cron="0 9 * * mon-fri", tz="Europe/Paris")
            ... @queue.task
            ... def morning_report() -> str:
            ...     return "all is well"
        """

        def declare(function: TaskFunction[P, R]) -> TaskFunction[P, R]:
            if not isinstance(function, TaskFunction):
                raise TaskDefinitionError(
                    f"@queue.schedule goes over a task; put @queue.task under it, on {function!r}"
                )
            kwargs = function.definition.bind((), decided.get("kwargs", {}))
            secrets = list(function.definition.secrets) if kwargs else None
            plan = Plan.over(function.name, **{**decided, "kwargs": kwargs, "secrets": secrets or None})
            check_name(plan.name)
            plan = replace(plan, options=_repeatable(plan))
            self.declared_schedules = [each for each in self.declared_schedules if each.name != plan.name] + [plan]
            return function

        return declare

    @operation
    def add_schedule(
        self,
        name: str,
        *,
        task: str,
        cron: str | None = None,
        every: float | None = None,
        tz: str = "UTC",
        kwargs: Any = NO_PAYLOAD,
        **decided: Unpack[Scheduling],
    ) -> Operation[Schedule]:
        """Make a schedule, or change the one of that name: cron in a time zone, or every so many seconds.

        Examples:
            >>> schedule = queue.add_schedule("nightly", task="add", cron="30 2 * * *", kwargs={"a": 1})
            >>> schedule.next_runs(1)[0].strftime("%H:%M")
            '02:30'
        """
        Plan.check_names(decided)
        new = with_secrets(self.new_by_name(task, kwargs), decided.get("secrets") or ())
        given: dict[str, Any] = {**decided, "kwargs": new.kwargs, "secrets": marked_paths(new.headers) or None}
        plan = Plan(name=check_name(name), task=task, cron=cron, every=every, tz=tz, **given)
        made = yield from schedules.put_schedule(replace(plan, options=_repeatable(plan)))
        if (definition := self.registry.get(task)) is not None:
            yield from schedules.declare_tasks({task: definition.options.for_rows})
        return made

    aadd_schedule = add_schedule.as_async

    @operation
    def schedules(self) -> Operation[Sequence[Schedule]]:
        """Every schedule, by name.

        Examples:
            >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
            >>> [schedule.name for schedule in queue.schedules()]
            ['often']
        """
        return (yield from schedules.list_schedules())

    aschedules = schedules.as_async

    @operation
    def get_schedule(self, name: str) -> Operation[Schedule | None]:
        """The schedule of this name, or None.

        Examples:
            >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
            >>> queue.get_schedule("often").plan.every
            60.0
        """
        return (yield from schedules.get_schedule(name))

    aget_schedule = get_schedule.as_async

    @operation
    def remove_schedule(self, name: str) -> Operation[bool]:
        """Remove a schedule; tasks it has made stay.  False if there is none of that name.

        Examples:
            >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
            >>> queue.remove_schedule("often"), queue.remove_schedule("often")
            (True, False)
        """
        change = schedules.remove_schedule(name)
        return (yield from logged(change, "remove_schedule", on=name, added=if_done))

    aremove_schedule = remove_schedule.as_async

    @operation
    def pause_schedule(self, name: str, *, by: str | None = None) -> Operation[bool]:
        """Let no more ticks of a schedule run; False if there is none of that name.

        Examples:
            >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
            >>> queue.pause_schedule("often", by="ada")
            True
            >>> queue.get_schedule("often").next_runs()
            []
        """
        change = schedules.pause_schedule(name, by)
        return (yield from logged(change, "pause_schedule", by=by, on=name, added=if_done))

    apause_schedule = pause_schedule.as_async

    @operation
    def resume_schedule(self, name: str) -> Operation[bool]:
        """Let a schedule run again, from its next tick on; False if there is none of that name.

        Examples:
            >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
            >>> queue.pause_schedule("often"), queue.resume_schedule("often")
            (True, True)
        """
        change = schedules.resume_schedule(name)
        return (yield from logged(change, "resume_schedule", on=name, added=if_done))

    aresume_schedule = resume_schedule.as_async

    @operation
    def run_schedule(self, name: str) -> Operation[TaskId | None]:
        """Make a task of the schedule at once, in addition to its ticks; None if there is none of that name.

        Examples:
            >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
            >>> task_id = queue.run_schedule("often")
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            2
        """
        task_id = yield from schedules.run_now(name, self.scheduled_task)
        if task_id is not None:
            task_id.made_by(self._results)
        return task_id

    arun_schedule = run_schedule.as_async

    @operation
    def fire_schedules(self) -> Operation[int]:
        """Make the tasks of every due tick; workers do this by themselves.  Returns how many were made."""
        return (yield from schedules.fire_schedules(self.scheduled_task))

    afire_schedules = fire_schedules.as_async

    def scheduled_task(self, plan: Plan, declared: Declared) -> NewTask:
        """The row of a schedule's next task, the same whichever program makes it.

        Its arguments were checked when the schedule was made.  What a row takes from the task's declaration is read
        from the database; retries and timeout are left to the worker that runs the task.
        """
        definition = self.registry.get(plan.task)
        if declared is None and definition is not None:
            declared = definition.options.for_rows  # No worker with the task's code has started yet.
        options = SubmitOptions().with_(**plan.options)
        row = self.make_row(plan.task, plan.kwargs, options, TaskOptions.of_rows(declared or {}), UNDECIDED)
        row = replace(row, timeout_seconds=options.timeout_seconds)
        return with_secrets(row, (*secrets_of(definition), *(plan.secrets or ())))


def _repeatable(plan: Plan) -> dict[str, Any]:
    """The options of a plan as they are stored; those that no task of a schedule can have are a ConfigurationError."""
    given: Any = plan.options
    start = f"schedule {plan.name!r}: options"
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{start} must be a mapping, such as {{'priority': 5}}, got {given!r}")
    options = {name: value for name, value in given.items() if value is not None or name not in _OF_ONE_TASK}
    for name, remedy in _OF_ONE_TASK.items():
        if name in options:
            raise ConfigurationError(f"{start} cannot have {name} (got {options[name]!r}): {remedy}")
    SubmitOptions().with_(**options)
    stored: dict[str, Any] = plain(options, what=f"options of schedule {plan.name}")
    return stored


_OF_ONE_TASK: Final[Mapping[str, str]] = {
    "id": "each of its tasks gets an id of its own; leave it out",
    "connection": "workers submit its tasks, on connections of their own; leave it out",
    "run_at": "cron, every and starts_at say when it runs",
    "delay_seconds": "cron, every, starts_at and jitter say when it runs",
    "expires_at": "every run after that moment would be cancelled; declare @task(expires_after=...) instead",
    "on_conflict": "a run whose unique_key is held by another task is left out; leave on_conflict out",
}
"""Options of a single submission that make no sense for each task of a schedule, and what to do instead."""
