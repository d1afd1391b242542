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
from tasklib.storage.operations.objectives import list_objectives
from tasklib.storage.operations.schedules import import_schedule
from tasklib.storage.statement import Operation, Statement

COPIED: Final = "copied by tasklib copy"
"""Why the source of a copy is paused."""


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
    left: int
    """Schedules, pauses, limits and objectives that the target had already, and that were left as they are there."""


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
        settings = [each(self.queue, target) for each in (_schedules, _pauses, _limits, _objectives)]
        schedules, pauses, limits, objectives = (new for new, _ in settings)
        left = sum(found - new for new, found in settings)
        return Copied(*tasks, schedules, pauses, limits, objectives, left)


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


# How many of a kind were new in the target, and how many were found.
_Counts = tuple[int, int]


def _schedules(old: TaskQueue, new: TaskQueue) -> _Counts:
    # What cannot run here could not run there either.
    found = [schedule for schedule in old.schedules() if not isinstance(schedule.plan, BrokenPlan)]
    return sum(new.database.run(lambda each=each: import_schedule(each)) for each in found), len(found)  # type: ignore[misc]


def _pauses(old: TaskQueue, new: TaskQueue) -> _Counts:
    # Without the pause of the copy itself: the target shall work.
    found = [pause for pause in old.pauses() if pause.reason != COPIED]
    known = {pause.name for pause in new.pauses()}
    missing = [pause for pause in found if pause.name not in known]
    for pause in missing:
        new.pause(pause.name, by=pause.by, reason=pause.reason)
    return len(missing), len(found)


def _limits(old: TaskQueue, new: TaskQueue) -> _Counts:
    limits, known = old.limits(), {limit.name for limit in new.limits()}
    missing = [limit for limit in limits if limit.name not in known]
    for limit in missing:
        if limit.rate is not None:
            new.set_rate_limit(limit.rate, limit.name, burst=limit.burst)
        if limit.max_running is not None:
            new.set_concurrency_limit(limit.max_running, limit.name)
    key_limits, known_keys = old.key_limits(), {(each.key, each.name) for each in new.key_limits()}
    missing_keys = [each for each in key_limits if (each.key, each.name) not in known_keys]
    for each in missing_keys:
        new.set_key_limit(each.max_running, each.key, each.name)
    spent, known_budgets = old.budgets(), {budget.name for budget in new.budgets()}
    missing_budgets = [each for each in spent if each.name not in known_budgets]
    for budget in missing_budgets:
        new.set_budget(budget.name, per_second=budget.rate, burst=budget.burst)
    return len(missing) + len(missing_keys) + len(missing_budgets), len(limits) + len(key_limits) + len(spent)


def _objectives(old: TaskQueue, new: TaskQueue) -> _Counts:
    found = old.database.run(list_objectives)
    known = {(each.name, each.kind) for each in new.database.run(list_objectives)}
    missing = [each for each in found if (each.name, each.kind) not in known]
    for each in missing:
        new.set_objective(
            each.name, within_seconds=each.within_seconds, target=each.target, kind=each.kind, by=each.set_by
        )
    return len(missing), len(found)
