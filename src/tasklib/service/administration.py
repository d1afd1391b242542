"""A queue as a whole: its clock, its tables, grants for PostgreSQL roles, copying it elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tasklib.core.schedule import BrokenPlan
from tasklib.queue import TaskQueue
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import copy
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.limits import budgets
from tasklib.storage.operations.objectives import list_objectives
from tasklib.storage.statement import Operation, Statement

COPIED: Final = "copied by tasklib copy"
"""Why the source of a copy is paused."""
DECIDED: Final = (
    *("task", "cron", "every", "tz", "kwargs", "misfire", "overlap", "jitter"),
    *("starts_at", "ends_at", "options", "secrets"),
)
"""The fields of a plan that are copied, beside its name."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy has found and stored."""

    seen: int
    copied: int
    """Fewer than were seen if the target had some already."""
    unreadable: Sequence[str]
    """The ids of tasks that cannot be read and were not copied."""
    schedules: int
    pauses: int
    limits: int
    objectives: int


class Administration(ServicePart):
    """One queue as a whole."""

    @operation
    def now(self) -> Operation[datetime]:
        """The time by the database's clock, which wrote the times that ages are computed from."""
        return (yield from read_clock())

    @operation
    def require_tables(self) -> Operation[None]:
        """Nothing, if the tables are those of this version; else an error says what is wrong.  Every role may ask."""
        yield from read_clock()  # A database looks at its tables before its first statement.

    arequire_tables = require_tables.as_async

    @operation
    def drop_schema(self) -> Operation[None]:
        """Remove the whole PostgreSQL schema with everything in it; only for one that the caller has made."""
        yield Statement("drop_schema")

    adrop_schema = drop_schema.as_async

    def migration_script(self) -> str:
        """What `migrate` would run now, as SQL; empty if nothing is missing.  Changes nothing."""
        return self.database.migration_script()

    def grant(self, duty: str, role: str, *, apply: bool) -> list[str]:
        """The GRANTs that a PostgreSQL role needs for its duty; with `apply` they are run, all or none."""
        from tasklib.storage.postgres.database import PostgresDatabase
        from tasklib.storage.postgres.grants import Duty

        database = self.database
        assert isinstance(database, PostgresDatabase)
        database.migrate()
        return database.grant(Duty(duty), role, apply=apply)

    def copy_to(self, target: TaskQueue, *, by: str, progress: Callable[[int], None]) -> Copied:
        """Pause this queue and copy everything in it to another one; what that has already is left as it is.

        `progress` is called with how many tasks were read so far.
        """
        if not self.queue.is_paused():
            self.queue.pause(by=by, reason=COPIED)
        _copy_groups(self.queue, target, copy.import_groups)
        tasks = _copy_tasks(self.queue, target, progress)
        _copy_groups(self.queue, target, copy.close_groups)
        _copy_facts(self.queue, target)
        return Copied(
            *tasks,
            schedules=_copy_schedules(self.queue, target),
            pauses=_copy_pauses(self.queue, target),
            limits=_copy_limits(self.queue, target),
            objectives=_copy_objectives(self.queue, target),
        )


def _copy_tasks(old: TaskQueue, new: TaskQueue, progress: Callable[[int], None]) -> tuple[int, int, list[str]]:
    """How many tasks were seen and how many stored, and the ids of those that cannot be read."""
    seen = copied = after = 0
    unreadable: list[str] = []
    while True:
        found = old.database.run(lambda after=after: copy.export_tasks(after))  # type: ignore[misc]
        if found.last == after:
            return seen, copied, unreadable
        unreadable += found.unreadable
        copied += new.database.run(lambda found=found: copy.import_tasks(found))  # type: ignore[misc]
        seen, after = seen + len(found.rows), found.last
        progress(seen)


def _copy_groups(old: TaskQueue, new: TaskQueue, store: Callable[[copy.ExportedGroups], Operation[None]]) -> None:
    """Groups before their members, to have these counted, and after them, to let the groups be over."""
    after = copy.FIRST
    while True:
        found = old.database.run(lambda after=after: copy.export_groups(after))  # type: ignore[misc]
        if not found.groups:
            return
        new.database.run(lambda found=found: store(found))  # type: ignore[misc]
        after = found.last


def _copy_facts(old: TaskQueue, new: TaskQueue) -> None:
    after = 0
    while True:
        facts, after = old.database.run(lambda after=after: copy.export_facts(after))  # type: ignore[misc]
        if not facts:
            return
        new.database.run(lambda facts=facts: copy.import_facts(facts))  # type: ignore[misc]


def _copy_schedules(old: TaskQueue, new: TaskQueue) -> int:
    found = old.schedules()
    for schedule in found:
        plan = schedule.plan
        if isinstance(plan, BrokenPlan):
            continue  # it could not run there either
        new.add_schedule(plan.name, **{name: getattr(plan, name) for name in DECIDED})
        if schedule.paused_at is not None:
            new.pause_schedule(plan.name, by=schedule.paused_by)
    return len(found)


def _copy_pauses(old: TaskQueue, new: TaskQueue) -> int:
    # Without the pause of the copy itself: the target shall work.
    found = [pause for pause in old.pauses() if pause.reason != COPIED]
    for pause in found:
        new.pause(pause.name, by=pause.by, reason=pause.reason)
    return len(found)


def _copy_limits(old: TaskQueue, new: TaskQueue) -> int:
    limits, key_limits = old.limits(), old.key_limits()
    for limit in limits:
        if limit.rate is not None:
            new.set_rate_limit(limit.rate, limit.name, burst=limit.burst)
        if limit.max_running is not None:
            new.set_concurrency_limit(limit.max_running, limit.name)
    for key_limit in key_limits:
        new.set_key_limit(key_limit.max_running, key_limit.key, key_limit.name)
    spent = old.database.run(budgets.list_budgets)
    for budget in spent:
        new.set_budget(budget.name, per_second=budget.rate, burst=budget.burst)
    return len(limits) + len(key_limits) + len(spent)


def _copy_objectives(old: TaskQueue, new: TaskQueue) -> int:
    found = old.database.run(list_objectives)
    for each in found:
        new.set_objective(
            each.name, within_seconds=each.within_seconds, target=each.target, kind=each.kind, by=each.set_by
        )
    return len(found)
