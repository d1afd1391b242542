"""Deleting and cleaning up: only what has ended goes, in bounded steps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import ConfigurationError, InvalidTransition, TaskNotFound
from tasklib.core.lifecycle import LIVE, TERMINAL, Phase
from tasklib.storage.operations import actions
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import Face
from tests.fixtures.waiting import eventually


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_what_has_ended_is_deleted(queue: Face, phase: Phase):
    ended = queue.task_in(phase)

    assert queue.delete(ended.id) is True

    assert queue.get(ended.id) is None
    with pytest.raises(TaskNotFound):
        queue.delete(ended.id)


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_what_lives_is_not_deleted(queue: Face, phase: Phase):
    alive = queue.task_in(phase)
    before = queue.bytes_of(alive.id)

    with pytest.raises(InvalidTransition, match=rf"delete.*{phase}"):
        queue.delete(alive.id)

    assert queue.bytes_of(alive.id) == before


def test_many_are_deleted_by_filter(queue: Face):
    ended = [queue.task_in(phase) for phase in sorted(TERMINAL)]
    kept = [queue.task_in(Phase.COMPLETED, "other"), queue.task_in(Phase.RETRYING), queue.task_in(Phase.PENDING)]

    assert queue.delete_many(name="job", state=[phase.state for phase in TERMINAL]) == len(ended)
    assert {task.id for task in queue.list()} == {task.id for task in kept}


def test_states_given_narrow_the_filter(queue: Face):
    queue.task_in(Phase.COMPLETED)
    kept = queue.task_in(Phase.FAILED)

    assert queue.delete_many(state="completed") == 1
    assert [task.id for task in queue.list()] == [kept.id]


def test_a_dry_run_counts_and_deletes_nothing(queue: Face):
    queue.task_in(Phase.FAILED)
    queue.enqueue("job")

    assert queue.delete_many(dry_run=True) == 1
    assert queue.count() == 2


def test_bulk_actions_go_on_from_step_to_step(queue: Face, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actions, "STEP", 2)
    for _ in range(5):
        queue.enqueue("job")

    assert queue.cancel_many() == 5
    assert queue.retry_many(state="cancelled") == 5
    assert queue.cancel_many() == 5
    assert queue.delete_many(state="cancelled") == 5
    assert queue.count() == 0


@pytest.mark.parametrize("as_moment", [False, True], ids=["age", "moment"])
def test_cleanup_removes_what_ended_longer_ago(queue: Face, as_moment: bool):
    queue.task_in(Phase.COMPLETED)
    queue.advance(100)
    recent = queue.task_in(Phase.COMPLETED)
    queue.advance(10)
    older_than: Any = queue.now - timedelta(seconds=50) if as_moment else timedelta(seconds=50)

    assert queue.cleanup(older_than=older_than) == 1
    assert [task.id for task in queue.list()] == [recent.id]


def test_cleanup_takes_seconds_too(queue: Face):
    queue.task_in(Phase.COMPLETED)
    queue.advance(50.1)

    assert queue.cleanup(older_than=60) == 0
    assert queue.cleanup(older_than=50) == 1


def test_cleanup_removes_completed_only_unless_told_more(queue: Face):
    for phase in [*sorted(TERMINAL), Phase.RETRYING, Phase.RUNNING, Phase.PENDING]:
        queue.task_in(phase)
    queue.advance(100)

    assert queue.cleanup(older_than=1) == 1
    assert queue.cleanup(older_than=1, state=["failed", "buried"]) == 2
    assert sorted(task.state.value for task in queue.list()) == ["cancelled", "failed", "pending", "running"]


def test_cleanup_of_one_name(queue: Face):
    queue.task_in(Phase.COMPLETED, "a")
    queue.task_in(Phase.COMPLETED, "b")
    queue.advance(100)

    assert queue.cleanup(older_than=1, name="a") == 1
    assert [task.name for task in queue.list()] == ["b"]


def test_cleanup_goes_on_from_step_to_step(queue: Face, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actions, "STEP", 2)
    for _ in range(5):
        queue.cancel(queue.enqueue("job"))
    kept = queue.enqueue("job")
    queue.advance(100)

    assert queue.cleanup(older_than=1, state="cancelled") == 5
    assert [task.id for task in queue.list()] == [kept]


def test_cleanup_needs_a_moment_that_is_one(queue: Face):
    with pytest.raises(ConfigurationError, match="time zone"):
        queue.cleanup(older_than=datetime(2030, 1, 1))  # noqa: DTZ001  that is the mistake


@pytest.mark.parametrize("state", ["delayed", "retrying", "sleeping", "pending", "running"])
@pytest.mark.backends("sqlite-memory")
def test_cleanup_refuses_what_is_no_state_of_finished_tasks(queue: Face, state: str):
    with pytest.raises(ConfigurationError, match=state):
        queue.cleanup(older_than=1, state=state)


@pytest.mark.backends("postgres")
def test_cleanup_removes_also_what_somebody_writes_between_look_and_lock(queue: Face):
    # A page that is short of one would end the clean-up, however much there is after it.
    queue.task_in(Phase.COMPLETED)
    queue.task_in(Phase.COMPLETED)
    text = queue.plain.database._ensure().pyformat["cleanup_tasks"]  # type: ignore[attr-defined]
    halts = text.replace(
        "WHERE t.completed_at", "WHERE (SELECT pg_advisory_xact_lock(1) IS NOT NULL) AND t.completed_at", 1
    )
    page = {
        "older_than": queue.now + timedelta(1),
        "states": '["completed"]',
        "name": None,
        "after": 0,
        "until": 9,
        "limit": 2,
    }

    def clean_up() -> object:
        with psycopg.connect(libpq_url(queue.url)) as own:
            return own.execute(halts.encode(), page).fetchone()

    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(libpq_url(queue.url)) as other:
            other.execute("SELECT pg_advisory_xact_lock(1)")
            deleted = threads.submit(clean_up)
            eventually(lambda: queue.sql("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            other.execute("UPDATE tasks SET watched = true WHERE seq = 1")

    assert deleted.result() == (2, 2)
