"""Schedules: each tick makes exactly one task, on every database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import ConfigurationError, InvalidArguments, ManualClock, TaskQueue
from tasklib.core.schedule import MAX_AT_ONCE, Plan
from tasklib.storage.operations import schedules
from tests.fixtures.backends import libpq_url

START = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def queue(database_url: str, clock: ManualClock) -> Iterator[TaskQueue]:
    with TaskQueue(database_url, clock=clock) as queue:
        yield queue


def declare(queue: TaskQueue) -> None:
    """What a worker does with the schedules of its code when it starts."""
    queue.database.run(
        lambda: schedules.declare_schedules(
            queue.declared_schedules, queue.registry.names(), queue.clock.now() or START
        )
    )


def test_a_tick_makes_one_task_with_its_arguments_and_options(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("hourly", task="report", cron="0 * * * *", kwargs={"of": "day"}, options={"priority": 7})
    assert queue.fire_schedules() == 0
    clock.advance(hours=1)

    assert queue.fire_schedules() == 1
    assert queue.fire_schedules() == 0
    [task] = queue.list()
    tick = datetime(2026, 11, 15, 13, 0, tzinfo=UTC)
    assert (task.name, task.kwargs, task.priority, task.scheduled_at) == ("report", {"of": "day"}, 7, tick)
    assert task.headers == {"schedule": "hourly", "tick": tick.isoformat()}
    schedule = queue.get_schedule("hourly")
    assert schedule is not None
    assert (schedule.last_run_at, schedule.last_task_id) == (tick, task.id)
    assert schedule.next_runs(2) == [tick + timedelta(hours=1), tick + timedelta(hours=2)]


@pytest.mark.parametrize("misfire, made", [("one", 1), ("skip", 0), ("all", 3)])
def test_ticks_that_were_missed(queue: TaskQueue, clock: ManualClock, misfire: Any, made: int) -> None:
    queue.add_schedule("hourly", task="report", cron="0 * * * *", misfire=misfire)
    clock.advance(hours=3, minutes=10)
    assert queue.fire_schedules() == made
    assert queue.count() == made


def test_all_missed_ticks_are_made_up_for_however_many(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("often", task="report", every=1, misfire="all")
    missed = MAX_AT_ONCE + 5
    clock.advance(missed)
    assert queue.fire_schedules() == missed
    oldest, latest = (
        datetime.fromisoformat(queue.list(limit=1, offset=offset)[0].headers["tick"]) for offset in (missed - 1, 0)
    )
    assert (oldest, latest) == (START + timedelta(seconds=1), START + timedelta(seconds=missed))


def test_ticks_after_the_end_are_not_made_up_for(queue: TaskQueue, clock: ManualClock) -> None:
    ends = START + timedelta(seconds=125)
    queue.add_schedule("seldom", task="report", every=60, misfire="all", ends_at=ends)
    queue.add_schedule("by cron", task="report", cron="* * * * *", misfire="all", ends_at=ends)
    clock.advance(hours=1)
    assert queue.fire_schedules() == 4
    assert [schedule.next_run_at for schedule in queue.schedules()] == [None, None]


def test_nothing_runs_before_the_start(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("later", task="report", every=60, starts_at=START + timedelta(minutes=5))
    clock.advance(minutes=4, seconds=59)
    assert queue.fire_schedules() == 0
    clock.advance(1)
    assert queue.fire_schedules() == 1


def test_jitter_delays_each_run_within_its_bound(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("spread", task="report", every=60, jitter=30, misfire="all")
    clock.advance(minutes=20)
    assert queue.fire_schedules() == 20
    delays = [
        (task.scheduled_at - datetime.fromisoformat(task.headers["tick"])).total_seconds() for task in queue.list()
    ]
    assert all(0 <= delay <= 30 for delay in delays)
    assert len(set(delays)) == 20


def test_overlap_skip_waits_for_the_run_before(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("often", task="report", every=60, overlap="skip")
    clock.advance(60)
    assert queue.fire_schedules() == 1
    ran = queue.get_schedule("often")
    clock.advance(60)
    assert queue.fire_schedules() == 0
    skipped = queue.get_schedule("often")
    assert ran is not None
    assert skipped is not None
    assert (skipped.last_task_id, skipped.last_run_at) == (ran.last_task_id, ran.last_run_at)
    queue.cancel(queue.list()[0].id)
    clock.advance(60)
    assert queue.fire_schedules() == 1


def test_a_paused_schedule_makes_nothing_and_goes_on_with_the_next_tick(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("often", task="report", every=60, misfire="all")
    assert queue.pause_schedule("often", by="ann")
    clock.advance(minutes=10)
    assert queue.fire_schedules() == 0
    paused = queue.get_schedule("often")
    assert paused is not None
    assert (paused.paused_by, paused.next_runs()) == ("ann", [])

    assert queue.resume_schedule("often")
    assert queue.fire_schedules() == 0
    clock.advance(60)
    assert queue.fire_schedules() == 1


def test_run_now_makes_a_task_beside_the_ticks(queue: TaskQueue) -> None:
    before = queue.add_schedule("hourly", task="report", cron="0 * * * *", kwargs={"of": "day"})
    task_id = queue.run_schedule("hourly")
    assert task_id is not None
    task, after = queue.get(task_id), queue.get_schedule("hourly")
    assert task is not None
    assert after is not None
    assert (task.name, task.kwargs, after.next_run_at) == ("report", {"of": "day"}, before.next_run_at)
    assert task.headers == {"schedule": "hourly"}


def test_a_payload_of_null_stays_null(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("null", task="report", every=60, kwargs=None)
    queue.add_schedule("none", task="report", every=60)
    clock.advance(61)

    assert [schedule.plan.kwargs for schedule in queue.schedules()] == [{}, None]
    assert queue.run_schedule("null") is not None
    assert queue.fire_schedules() == 2
    made = [(task.headers["schedule"], task.payload) for task in queue.list()]
    assert sorted(made, key=repr) == [("none", {}), ("null", None), ("null", None)]


@pytest.mark.parametrize("change", [{"kwargs": {"of": "week"}}, {"misfire": "all"}, {"jitter": 5.0}, {"task": "other"}])
def test_changing_anything_but_the_times_leaves_these_as_they_are(
    queue: TaskQueue, clock: ManualClock, change: dict[str, Any]
) -> None:
    first = queue.add_schedule("often", task="report", every=60)
    clock.advance(30)
    changed = queue.add_schedule("often", **{"task": "report", "every": 60, **change})
    ((what, value),) = change.items()
    assert (changed.next_run_at, getattr(changed.plan, what)) == (first.next_run_at, value)


def test_changing_the_times_starts_them_anew(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("often", task="report", every=60)
    clock.advance(30)
    assert queue.add_schedule("often", task="report", every=10).next_run_at == START + timedelta(seconds=40)


def test_a_schedule_ends(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("twice", task="report", every=60, ends_at=START + timedelta(seconds=125))
    for _ in range(5):
        clock.advance(60)
        queue.fire_schedules()
    schedule = queue.get_schedule("twice")
    assert schedule is not None
    assert (queue.count(), schedule.next_run_at) == (2, None)


def test_what_is_not_there_is_said(queue: TaskQueue) -> None:
    assert queue.get_schedule("none") is None
    assert queue.run_schedule("none") is None
    assert not queue.pause_schedule("none")
    assert not queue.resume_schedule("none")
    assert not queue.remove_schedule("none")


def test_arguments_that_do_not_fit_the_task_are_refused_when_the_schedule_is_made(queue: TaskQueue) -> None:
    @queue.task
    def report(of: str) -> None: ...

    with pytest.raises(InvalidArguments, match="of"):
        queue.add_schedule("nightly", task="report", every=60)
    with pytest.raises(ConfigurationError, match="no such option: colour"):
        queue.add_schedule("nightly", task="report", every=60, kwargs={"of": "day"}, options={"colour": "red"})
    assert queue.schedules() == []


@pytest.mark.parametrize(
    "given, why",
    [
        ({"options": {"id": UUID(int=1)}}, "cannot have id .*each of its tasks gets an id of its own"),
        ({"options": {"expires_at": datetime(2030, 1, 1, tzinfo=UTC)}}, "cannot have expires_at .*expires_after"),
        ({"options": {"delay_seconds": 5}}, "cannot have delay_seconds .*starts_at"),
        ({"options": {"priority": "high"}}, "priority must be a whole number .*got 'high'"),
        ({"options": "priority"}, "options must be a mapping"),
        ({"priority": 5}, r"has no 'priority'.*options=\{"),
        ({"starts_at": "tomorrow"}, "starts_at must be a datetime with a time zone, got 'tomorrow'"),
        ({"starts_at": datetime(2030, 1, 2, tzinfo=UTC), "ends_at": datetime(2030, 1, 1, tzinfo=UTC)}, "never run"),
    ],
)
def test_a_schedule_that_could_never_make_a_task_is_refused(queue: TaskQueue, given: Any, why: str) -> None:
    @queue.task
    def report() -> None: ...

    with pytest.raises(ConfigurationError, match=why):
        queue.add_schedule("nightly", task="report", every=60, **given)
    with pytest.raises(ConfigurationError, match=why):
        queue.schedule(every=60, **given)(report)
    assert (queue.schedules(), queue.declared_schedules) == ([], [])


def test_options_that_say_nothing_count_as_not_given(queue: TaskQueue) -> None:
    queue.add_schedule("daily", task="report", every=60, options={"run_at": None, "expires_at": None, "priority": 5})

    stored = queue.get_schedule("daily")
    assert stored is not None
    assert stored.plan.options == {"priority": 5}


def test_schedules_declared_in_code_are_made_changed_and_removed_with_it(queue: TaskQueue, clock: ManualClock) -> None:
    @queue.schedule(every=60, kwargs={"of": "day"})
    @queue.task
    def report(of: str) -> None: ...

    queue.add_schedule("by hand", task="report", every=5, kwargs={"of": "hour"})
    declare(queue)
    assert [(s.name, s.declared) for s in queue.schedules()] == [("by hand", False), ("report", True)]

    clock.advance(1)
    queue.schedule(every=30, kwargs={"of": "day"})(report)
    declare(queue)
    stored = queue.get_schedule("report")
    assert stored is not None
    assert stored.plan.every == 30

    clock.advance(1)
    queue.declared_schedules.clear()
    declare(queue)
    assert [s.name for s in queue.schedules()] == ["by hand"]


def test_a_batch_runs_the_ticks_that_are_due(queue: TaskQueue, clock: ManualClock) -> None:
    @queue.schedule(every=60, kwargs={"of": "day"})
    @queue.task
    def report(of: str) -> str:
        return of

    assert queue.process_batch() == 0
    queue.add_schedule("by hand", task="report", cron="* * * * *", kwargs={"of": "minute"})
    clock.advance(60)

    assert (queue.process_batch(), queue.process_batch()) == (2, 0)
    assert {task.result["value"] for task in queue.list(state="completed") if task.result} == {"day", "minute"}


def test_a_batch_removes_no_schedule_that_its_program_does_not_declare(queue: TaskQueue, clock: ManualClock) -> None:
    @queue.schedule(every=60)
    @queue.task
    def report() -> None: ...

    assert queue.process_batch() == 0
    queue.declared_schedules.clear()  # As in a script that only knows the task.
    clock.advance(1)
    queue.process_batch()
    assert [schedule.name for schedule in queue.schedules()] == ["report"]


class Release:
    """One version of a program, whose workers declare what it says as if they had started at some second."""

    def __init__(self, queue: TaskQueue, *plans: Plan) -> None:
        self.queue, self.plans = queue, plans

    def started_at(self, second: int) -> None:
        at = START + timedelta(seconds=second)
        known = ["report", "other"]
        self.queue.database.run(lambda: schedules.declare_schedules(self.plans, known, at))

    def intervals(self) -> dict[str, float | None]:
        return {schedule.name: schedule.plan.every for schedule in self.queue.schedules()}


def test_during_a_deployment_the_release_that_started_later_decides(queue: TaskQueue) -> None:
    report, other = Plan(name="report", task="report", every=60), Plan(name="other", task="other", every=5)
    old = Release(queue, report, other)
    new = Release(queue, replace(report, every=30))
    old.started_at(0)
    new.started_at(10)
    assert new.intervals() == {"report": 30}
    # A worker of the old release that was slow to declare, and one of the new that says it once more.
    old.started_at(5)
    new.started_at(11)
    assert new.intervals() == {"report": 30}
    old.started_at(20)  # rolled back
    assert old.intervals() == {"report": 60, "other": 5}


def test_a_release_that_says_the_same_again_is_not_undone_by_an_older_one(queue: TaskQueue) -> None:
    plan = Plan(name="report", task="report", every=60)
    Release(queue, plan).started_at(0)
    Release(queue, plan).started_at(10)
    Release(queue, replace(plan, every=30)).started_at(5)
    Release(queue).started_at(6)
    assert Release(queue).intervals() == {"report": 60}


def test_programs_with_other_tasks_leave_each_others_schedules_alone(queue: TaskQueue) -> None:
    @queue.schedule(every=60)
    @queue.task
    def report() -> None: ...

    declare(queue)
    queue.registry.remove("report")
    queue.declared_schedules.clear()
    declare(queue)
    assert [s.name for s in queue.schedules()] == ["report"]


def test_many_workers_firing_at_once_make_one_task_per_tick(queue: TaskQueue, clock: ManualClock) -> None:
    for number in range(5):
        queue.add_schedule(f"s{number}", task="report", every=60)
    barrier = threading.Barrier(8)
    made: list[int] = []

    def fire() -> None:
        barrier.wait()
        made.append(queue.fire_schedules())

    for _ in range(4):
        clock.advance(60)
        threads = [threading.Thread(target=fire) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (sum(made), queue.count()) == (20, 20)


BROKEN = {
    "zone": '{"task": "report", "cron": "0 * * * *", "tz": "Mars/Olympus"}',
    "newer": '{"task": "report", "every": 60, "calendar": "lunar"}',
    "option": '{"task": "report", "every": 60, "options": {"priority": "high"}}',
    "number": '{"task": 3, "every": "often", "jitter": [1], "kwargs": {"a": 1}}',
    "list": "[1, 2]",
    "moment": '{"task": "report", "every": 60, "starts_at": "tomorrow"}',
}


def write(queue: TaskQueue, url: str, text: str) -> None:
    """Change the table as another program would."""
    if queue.config.is_sqlite:
        with queue.database.transaction() as transaction:
            transaction.connection.execute(text)
    else:
        with psycopg.connect(libpq_url(url), autocommit=True) as connection:
            connection.execute(text.encode())


def test_a_schedule_that_cannot_run_stops_only_itself_and_says_why(
    queue: TaskQueue, clock: ManualClock, database_url: str
) -> None:
    queue.add_schedule("good", task="report", every=60)
    for name in BROKEN:
        queue.add_schedule(name, task="report", every=60)
    for name, plan in BROKEN.items():
        write(queue, database_url, f"UPDATE tasklib_schedules SET plan = '{plan}' WHERE name = '{name}'")
    clock.advance(seconds=61)

    assert queue.fire_schedules() == 1
    assert queue.fire_schedules() == 0
    assert [task.headers["schedule"] for task in queue.list()] == ["good"]
    known = {each.name: each for each in queue.schedules()}
    assert set(known) == {"good", *BROKEN}
    assert known["good"].error is None
    for name in BROKEN:
        assert known[name].error
        assert queue.get_schedule(name) == known[name]
        assert (name == "option") is bool(known[name].next_runs())
        with pytest.raises(ConfigurationError):
            queue.run_schedule(name)
        assert queue.pause_schedule(name)
        assert queue.resume_schedule(name)
    assert "Mars/Olympus" in (known["zone"].error or "")
    assert "calendar" in (known["newer"].error or "")
    assert "priority" in (known["option"].error or "")
    assert "JSON object" in (known["list"].error or "")
    assert not [each.error for each in known.values() if "__init__" in (each.error or "")]
    assert (known["newer"].plan.task, known["number"].plan.kwargs) == ("report", {"a": 1})

    queue.add_schedule("zone", task="report", every=60)
    clock.advance(seconds=61)
    assert queue.fire_schedules() == 2
    assert known["zone"].error != (queue.get_schedule("zone") or known["zone"]).error is None


def test_a_schedule_at_the_end_of_time_ends_there(queue: TaskQueue, clock: ManualClock) -> None:
    last = datetime(9998, 12, 31, 23, 59, tzinfo=UTC)
    queue.add_schedule("cron", task="report", cron="0 0 1 1 *", starts_at=last)
    queue.add_schedule("every", task="report", every=3e7, starts_at=last)

    for schedule in queue.schedules():
        assert 1 <= len(schedule.next_runs()) <= 2
        assert schedule.error is None


def test_a_tick_makes_the_same_task_whoever_takes_it(database_url: str, clock: ManualClock) -> None:
    with TaskQueue(database_url, clock=clock) as queue, TaskQueue(queue.config, clock=clock) as elsewhere:
        options: Any = {
            "priority": 7,
            "tags": {"team": "red"},
            "concurrency_key": "{team}-{of}",
            "expires_after": 600.0,
        }
        queue.task(name="report", max_retries=0, timeout_seconds=5.0, **options)(lambda of: None)
        elsewhere.add_schedule("often", task="report", every=60.0, kwargs={"of": "day"})
        given = {"priority": 1, "tags": {"team": "blue"}, "max_retries": 1, "timeout_seconds": 9.0}
        elsewhere.add_schedule("apart", task="report", every=60.0, kwargs={"of": "day"}, options=given)
        assert queue.process_batch() == 0  # a worker with the code has started
        for taker in (queue, elsewhere):
            clock.advance(60)
            assert taker.fire_schedules() == 2
            tick = clock.now()
            made = {task.headers["schedule"]: task for task in queue.list(state="pending")}
            often, apart = made["often"], made["apart"]
            assert tick is not None
            assert (often.priority, often.tags, often.concurrency_key) == (7, {"team": "red"}, "red-day")
            assert often.expires_at == apart.expires_at == tick + timedelta(seconds=600)
            assert (apart.priority, apart.tags, apart.concurrency_key) == (1, {"team": "blue"}, "blue-day")
            assert queue.process_batch() == 2
        ran = {(task.headers["schedule"], task.max_retries, task.timeout_seconds) for task in queue.list()}
        assert ran == {("often", 0, None), ("apart", 1, 9.0)}


def test_the_code_that_started_last_decides_what_ticks_make(database_url: str, clock: ManualClock) -> None:
    def priorities(queue: TaskQueue) -> list[int]:
        clock.advance(60)
        queue.fire_schedules()
        return [task.priority for task in queue.list(limit=1)]

    with TaskQueue(database_url, clock=clock) as old, TaskQueue(old.config, clock=clock) as new:
        old.task(name="report", priority=7)(lambda: None)
        new.task(name="report")(lambda: None)
        new.add_schedule("often", task="report", every=60.0)
        assert priorities(old) == [7]  # no worker has started yet
        old.process_batch()
        assert priorities(new) == [7]
        new.process_batch()
        assert priorities(old) == [0]
