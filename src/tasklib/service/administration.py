"""A queue as a whole: its clock, its tables, grants for PostgreSQL roles, copying it elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from tasklib.core.codec import dumps
from tasklib.core.limits import KeyLimit, Limit
from tasklib.core.schedule import BrokenPlan
from tasklib.queue import TaskQueue
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import copy
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.limits import pauses
from tasklib.storage.operations.limits.budgets import set_budget
from tasklib.storage.operations.limits.keys import set_key_limit
from tasklib.storage.operations.objectives import list_objectives, set_objective
from tasklib.storage.operations.schedules import get_declaration, import_schedule
from tasklib.storage.statement import Operation, Statement

COPIED: Final = "copied by tasklib copy"
"""Why the source of a copy is paused."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy has found and stored."""

    seen: int
    copied: int
    """Fewer than were seen if the target has some already, or has had them from an earlier copy."""
    unreadable: Sequence[str]
    """The ids of tasks that cannot be read and were not copied."""
    schedules: int
    pauses: int
    limits: int
    objectives: int
    left: int
    """Schedules, pauses, limits and objectives that the target has or has had: what became of them there stays."""


class Administration(ServicePart):
    """One queue as a whole."""

    @operation
    def now(self) -> Operation[datetime]:
        """The time by the database's clock, which wrote the times that ages are computed from."""
        return (yield from read_clock())

    @operation
    def require_tables(self) -> Operation[None]:
        """Nothing, if the tables are those of this version; else an error says what is wrong.  Every role may ask."""
        yield from read_clock()  # Every database checks its tables before its first statement.

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
        """Pause this queue and copy everything in it to another one, each thing once, however often this is repeated.

        What the other one has already is left as it is, and what it has done and removed since does not come back.

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
_Store = Callable[[], Operation[Any]]


def _bring(target: TaskQueue, kind: str, found: Mapping[str, _Store], known: Collection[str]) -> _Counts:
    """Store settings, by name, that the target does not have and has not had from an earlier copy."""
    came = [
        target.database.run(
            lambda name=name, store=store: copy.import_setting(kind, name, None if name in known else store)  # type: ignore[misc]
        )
        for name, store in found.items()
    ]
    return sum(came), len(came)


def _schedules(old: TaskQueue, new: TaskQueue) -> _Counts:
    # What cannot run here could not run there either.
    found = [schedule for schedule in old.schedules() if not isinstance(schedule.plan, BrokenPlan)]
    known = {schedule.name for schedule in new.schedules()}
    stores = {
        each.name: partial(import_schedule, each, old.database.run(partial(get_declaration, each.plan.task)))
        for each in found
    }
    return _bring(new, "schedule", stores, known)


def _pauses(old: TaskQueue, new: TaskQueue) -> _Counts:
    # Without the pause of the copy itself, so that the target's workers start.
    found = [pause for pause in old.pauses() if pause.reason != COPIED]
    stores = {each.name or "": partial(pauses.pause, each.name, by=each.by, reason=each.reason) for each in found}
    return _bring(new, "pause", stores, {each.name or "" for each in new.pauses()})


def _limits(old: TaskQueue, new: TaskQueue) -> _Counts:
    counts = (
        _bring(
            new,
            "limit",
            {each.name or "": partial(_set_limit, each) for each in old.limits()},
            {each.name or "" for each in new.limits()},
        ),
        _bring(
            new,
            "key limit",
            {_key_of(each): partial(set_key_limit, each.key, each.name, each.max_running) for each in old.key_limits()},
            {_key_of(each) for each in new.key_limits()},
        ),
        _bring(
            new,
            "budget",
            {each.name: partial(set_budget, each.name, each.rate, each.burst) for each in old.budgets()},
            {each.name for each in new.budgets()},
        ),
    )
    return sum(new for new, _ in counts), sum(found for _, found in counts)


def _set_limit(limit: Limit) -> Operation[None]:
    if limit.rate is not None:
        yield from pauses.set_rate(limit.name, limit.rate, burst=limit.burst)
    if limit.max_running is not None:
        yield from pauses.set_max_running(limit.name, limit.max_running)


def _key_of(limit: KeyLimit) -> str:
    return dumps([limit.key, limit.name])


def _objectives(old: TaskQueue, new: TaskQueue) -> _Counts:
    found, known = (
        {dumps([each.name, each.kind]): partial(set_objective, each) for each in queue.database.run(list_objectives)}
        for queue in (old, new)
    )
    return _bring(new, "objective", found, known)
