"""Schedules: stored, and moved from tick to tick so that each tick makes exactly one task."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from tasklib.core.codec import dumps, loads
from tasklib.core.schedule import BrokenPlan, Plan, Schedule
from tasklib.core.task import NewTask
from tasklib.core.task_id import TaskId
from tasklib.core.texts.signal_text import for_signals
from tasklib.errors import ConfigurationError, StorageError
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.tasks import submit_once, submit_tasks
from tasklib.storage.rows import NO_TIME, RowReader, moment, reason_of, required_moment, uuid
from tasklib.storage.statement import BEGIN, COMMIT, DONE_BEFORE, ROLLBACK, Operation, Row, Statement, recall

Declared = Mapping[str, Any] | None
"""What the code of a task declares for its rows, as a worker with that code has stored it; None if none has."""
MakeTask = Callable[[Plan, Declared], NewTask]
"""Makes the row of a schedule's next task."""
HELD_SECONDS: Final = 60.0
"""How long to wait before a schedule that failed to fire is tried again."""

log = logging.getLogger("tasklib.worker")


def put_schedule(plan: Plan, *, declared_at: datetime | None = None) -> Operation[Schedule]:
    """Make or change a schedule; only a change of its times resets the next run."""
    yield BEGIN
    clock = yield from read_clock()
    first = plan.first_run(clock)
    given = {"name": plan.name, "plan": dumps(_plan_json(plan)), "next_run_at": first, "declared_at": declared_at}
    yield Statement("put_schedule", given)
    stored = yield from get_schedule(plan.name)
    assert stored is not None
    return stored


def import_schedule(schedule: Schedule, declared: Declared) -> Operation[bool]:
    """Store a schedule of another database with its next run; False if one of that name exists, which stays.

    So does what is declared for its task, which workers that start there change.
    """
    kept = ("next_run_at", "last_run_at", "paused_at", "paused_by", "created_at")
    given: dict[str, Any] = {name: getattr(schedule, name) for name in kept}
    given |= {"name": schedule.name, "plan": dumps(_plan_json(schedule.plan))}
    given["last_task_id"] = None if schedule.last_task_id is None else str(schedule.last_task_id)
    # Workers that start there with the code that declares it count as later, and may change and remove it.
    given["declared_at"] = schedule.created_at if schedule.declared else None
    task = schedule.plan.task
    if declared is not None and (yield from get_declaration(task)) is None:
        yield from declare_tasks({task: declared})
    return bool((yield Statement("import_schedule", given)))


def get_schedule(name: str) -> Operation[Schedule | None]:
    """The schedule of this name, or None."""
    rows = yield Statement("get_schedule", {"name": name})
    return _schedule(rows[0]) if rows else None


def list_schedules() -> Operation[list[Schedule]]:
    """Every schedule, by name."""
    return [_schedule(row) for row in (yield Statement("list_schedules"))]


def declare_schedules(plans: Iterable[Plan], known_tasks: Iterable[str], declared_at: datetime) -> Operation[None]:
    """Store the schedules declared in code, and remove those that it no longer declares.

    Only schedules of tasks defined here are removed, so that programs with different tasks do not disturb each other.
    If two versions of a program run during a deployment, the one that started later decides.
    """
    declared = {plan.name: plan for plan in plans}
    for plan in declared.values():
        yield from put_schedule(plan, declared_at=declared_at)
        yield COMMIT
    tasks = set(known_tasks)
    for row in (yield Statement("list_schedules")):
        stored, at = _schedule(row), RowReader(row).read("declared_at", moment)
        undeclared = stored.declared and stored.name not in declared and stored.plan.task in tasks
        if undeclared and at is not None and at <= declared_at:
            yield Statement("remove_schedule", {"name": stored.name})


def declare_tasks(declared: Mapping[str, Mapping[str, Any]]) -> Operation[None]:
    """Store what code declares for new tasks of each name, so that every program makes the tasks of schedules alike."""
    given = [{"name": name, "options": options} for name, options in declared.items()]
    yield Statement("declare_tasks", {"tasks": dumps(given)})


def get_declaration(task: str) -> Operation[Declared]:
    """What code declares for new tasks of a name; None if no worker with that code has started yet."""
    rows = yield Statement("get_declaration", {"name": task})
    return loads(rows[0]["options"]) if rows else None


def fire_schedules(make: MakeTask) -> Operation[int]:
    """Make the tasks of every tick that is due, and return how many.  Any number of workers may do this at once."""
    made, more = 0, True
    while more:
        more = False
        for row in (yield Statement("due_schedules")):
            fired, left = yield from _fire_alone(_schedule(row), make, required_moment(row["now"]))
            made, more = made + fired, more or left
    return made


def run_now(name: str, make: MakeTask) -> Operation[TaskId | None]:
    """Make a task of the schedule at once, in addition to its ticks; None if there is no such schedule."""
    yield BEGIN
    schedule = yield from get_schedule(name)
    if schedule is None:
        return None
    if isinstance(schedule.plan, BrokenPlan):
        raise ConfigurationError(f"schedule {name!r} cannot run: {schedule.error}; change or remove it")
    task = make(schedule.plan, (yield from get_declaration(schedule.plan.task)))
    return (yield from submit_once(replace(task, headers={**task.headers, "schedule": name})))


def next_tick() -> Operation[float | None]:
    """Seconds until the next tick of any schedule; None if there is none."""
    seconds: float | None = (yield Statement("next_tick"))[0]["seconds"]
    return seconds


def pause_schedule(name: str, by: str | None) -> Operation[bool]:
    """Let no more ticks run; False if there is no such schedule."""
    return bool((yield Statement("pause_schedule", {"name": name, "by": by})))


def resume_schedule(name: str) -> Operation[bool]:
    """Let ticks run again, from the next one on; False if there is no such schedule."""
    yield BEGIN
    schedule = yield from get_schedule(name)
    if schedule is None:
        return False
    clock = yield from read_clock()
    following = schedule.next_run_at
    if following is not None and following < clock and not isinstance(schedule.plan, BrokenPlan):
        following = schedule.plan.following(following, clock)
    yield Statement("resume_schedule", {"name": name, "next_run_at": following})
    return True


def remove_schedule(name: str) -> Operation[bool]:
    """Remove a schedule; False if there is none of that name."""
    yield BEGIN
    memory = yield from recall()
    removed = bool((yield Statement("remove_schedule", {"name": name})))
    if not removed and "removed" in memory:
        removed = memory[DONE_BEFORE] = True
    if removed:
        memory["removed"] = True
    return removed


def _fire_alone(schedule: Schedule, make: MakeTask, clock: datetime) -> Operation[tuple[int, bool]]:
    """Fire in a transaction of its own; a schedule that fails is recorded with its error, and all others continue."""
    try:
        if isinstance(schedule.plan, BrokenPlan):
            raise ConfigurationError(schedule.error or "")
        yield BEGIN
        fired = yield from _fire(schedule, make, clock)
        yield COMMIT
        return fired
    except Exception as error:
        if isinstance(error, StorageError) and type(error) is not StorageError:
            raise  # not the schedule's fault: the database is unavailable, full, or refuses, or there was a conflict
        yield ROLLBACK
        reason, shown = (f"{type(each).__name__}: {reason_of(each)}" for each in (error, for_signals(error)))
        log.warning("schedule %r cannot run, and is tried again in %d s: %s", schedule.name, HELD_SECONDS, shown)
        held = {"name": schedule.name, "version": schedule.version, "error": reason, "seconds": HELD_SECONDS}
        yield Statement("hold_schedule", held)
        return 0, False


def _fire(schedule: Schedule, make: MakeTask, clock: datetime) -> Operation[tuple[int, bool]]:
    """Take the tick by moving the schedule on; only one worker can, because the version must be the one read.

    Returns how many tasks it made, and whether more ticks are due than one call makes up for.
    """
    plan = schedule.plan
    assert schedule.next_run_at is not None
    ticks, following = plan.due(schedule.next_run_at, clock)
    moving = {"name": plan.name, "version": schedule.version, "next_run_at": following}
    if not (yield Statement("move_schedule", moving)):
        return 0, False
    ids: list[TaskId] = []
    if ticks:
        declared = yield from get_declaration(plan.task)
        ids = yield from submit_tasks([_at(make(plan, declared), plan, tick) for tick in ticks])
    ran = [(tick, task_id) for tick, task_id in zip(ticks, ids, strict=True) if task_id.created]
    if ran:
        tick, task_id = ran[-1]
        yield Statement("note_run", {"name": plan.name, "last_run_at": tick, "task_id": str(task_id)})
    return len(ran), following is not None and following <= clock


def _at(task: NewTask, plan: Plan, tick: datetime) -> NewTask:
    """The task of one tick: due at the tick, spread by the schedule's jitter, one at a time if its overlap says so."""
    delay = random.uniform(0, plan.jitter) if plan.jitter else 0.0
    headers = {**task.headers, "schedule": plan.name, "tick": tick.isoformat()}
    unique = plan.unique_key if plan.overlap == "skip" else task.unique_key
    return replace(
        task,
        run_at=tick + timedelta(seconds=delay),
        delay_seconds=0.0,
        headers=headers,
        unique_key=unique,
        on_conflict="return",
    )


def _plan_json(plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key in Plan.fields():
        value = getattr(plan, key)
        # Only a payload can be null, and stays so.
        if key != "name" and (value is not None or key == "kwargs"):
            document[key] = value.isoformat() if isinstance(value, datetime) else value
    return document


def _schedule(row: Row) -> Schedule:
    """The schedule in a row; one that cannot be carried out is shown as far as it can be read, with the reason."""
    reader = RowReader(row)
    read = reader.read
    document: Any = read("plan", loads, {})
    try:
        plan = _plan(row["name"], document)
    except Exception as error:  # noqa: BLE001  anything may be stored there, also by a newer version
        plan = BrokenPlan.of(row["name"], document)
        reader.problems.append(reason_of(error))
    return Schedule(
        plan=plan,
        next_run_at=read("next_run_at", moment),
        last_run_at=read("last_run_at", moment),
        last_task_id=read("last_task_id", lambda value: None if value is None else uuid(value)),
        paused_at=read("paused_at", moment),
        paused_by=row["paused_by"],
        declared=row["declared_at"] is not None,
        version=row["version"],
        created_at=read("created_at", required_moment, NO_TIME),
        updated_at=read("updated_at", required_moment, NO_TIME),
        error="; ".join(reader.problems) or row["error"],
    )


def _plan(name: str, document: Any) -> Plan:
    """The plan in a stored document; ConfigurationError says what is wrong with it."""
    if not isinstance(document, dict):
        raise ConfigurationError("the stored plan is no JSON object; make the schedule again")
    stored: dict[str, Any] = document  # pyright: ignore[reportUnknownVariableType]
    if unknown := stored.keys() - Plan.fields():
        raise ConfigurationError(
            f"the stored plan has a field that this version does not support: {min(unknown)!r}; upgrade this program"
        )
    if "task" not in stored:
        raise ConfigurationError("the stored plan names no task; make the schedule again")
    given: dict[str, Any] = stored | {key: moment(stored[key]) for key in ("starts_at", "ends_at") if key in stored}
    return Plan(name=name, **given)
