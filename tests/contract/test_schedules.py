"""Schedules: each tick makes exactly one task, on every database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasklib import ConfigurationError, InvalidArguments, ManualClock, TaskQueue

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
    from tasklib.storage.operations import schedules

    queue.database.run(
        lambda: schedules.declare_schedules(
            queue.declared_schedules, queue.registry.names(), queue.clock.now() or START, queue.clock.now()
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


def test_overlap_skip_waits_for_the_run_before(queue: TaskQueue, clock: ManualClock) -> None:
    queue.add_schedule("often", task="report", every=60, overlap="skip")
    clock.advance(60)
    assert queue.fire_schedules() == 1
    clock.advance(60)
    assert queue.fire_schedules() == 0
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


def test_changing_the_arguments_leaves_the_times_as_they_are(queue: TaskQueue, clock: ManualClock) -> None:
    first = queue.add_schedule("often", task="report", every=60)
    clock.advance(30)
    changed = queue.add_schedule("often", task="report", every=60, kwargs={"of": "week"})
    assert (changed.next_run_at, changed.plan.kwargs) == (first.next_run_at, {"of": "week"})


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


def test_an_older_worker_does_not_undo_what_a_newer_one_declared(
    queue: TaskQueue, database_url: str, clock: ManualClock
) -> None:
    if database_url.endswith(":memory:"):
        old = queue
    else:
        old = TaskQueue(database_url, clock=ManualClock(START))

    @old.schedule(every=60)
    @old.task(name="report")
    def old_report() -> None: ...

    declare(old)
    clock.advance(10)
    old.declared_schedules[:] = []
    queue.registry.add(old.registry.find("report"))

    queue.schedule(every=30)(old_report)
    declare(queue)

    older = TaskQueue(database_url, clock=ManualClock(START)) if old is not queue else None
    if older is not None:
        older.schedule(every=60)(old_report)
        declare(older)
        older.close()
        old.close()
    stored = queue.get_schedule("report")
    assert stored is not None
    assert stored.plan.every == 30


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
