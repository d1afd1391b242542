"""Old facts go, but never one that a task may still wait for: one emitted up to 30 days before it was submitted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tasklib import AsyncTaskContext
from tasklib.core.lifecycle import Phase
from tasklib.core.retention import FACTS_KEPT_SECONDS
from tasklib.storage.operations.workflows import facts
from tasklib.storage.statement import Operation, Statement
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.retention import FactRetention
from tests.contract.test_steps import finish
from tests.fixtures.queues import Face

DAY = 86_400
HOUR = 3600


def sweep(queue: Face) -> list[str]:
    """Look for old facts as workers do; returns those that are left."""
    poll_batch = PollBatch(queue.plain.database, queue.plain.timing)
    step = FactRetention(queue.plain, FACTS_KEPT_SECONDS, poll_batch).step()
    if queue.form == "awaiting":
        queue.run_coroutine(step)
    else:
        asyncio.run(step)
    return [row["name"] for row in queue.sql("SELECT name FROM tasklib_events WHERE task_id IS NULL ORDER BY id")]


@pytest.fixture
def patient(queue: Face) -> Any:
    @queue.task
    async def patient(ctx: AsyncTaskContext, days: float) -> str:
        await ctx.sleep(days * DAY)
        return await ctx.wait("shipped", str)

    return patient


def test_a_fact_is_kept_for_thirty_days_and_then_goes(queue: Face):
    queue.emit("shipped", "early")
    queue.advance(30 * DAY)
    queue.emit("paid", "late")
    assert sweep(queue) == ["shipped", "paid"]
    queue.advance(2 * HOUR)
    assert sweep(queue) == ["paid"]
    assert queue.emit("shipped", "again"), "its name is free"


def test_a_task_finds_a_fact_of_thirty_days_before_it_however_late_it_waits(queue: Face, patient: Any):
    queue.emit("shipped", "early")
    queue.advance(29 * DAY)
    task_id = patient.submit(100.0)
    queue.process_batch()
    for _ in range(4):
        queue.advance(20 * DAY)
        assert sweep(queue) == ["shipped"]
    assert finish(queue, task_id).result == {"value": "early"}
    queue.advance(2 * HOUR)
    assert sweep(queue) == []


def test_a_task_that_ended_and_is_retried_is_one_that_may_wait(queue: Face):
    task = queue.task_in(Phase.FAILED)
    queue.advance(2 * HOUR)
    queue.emit("shipped", "early")
    queue.advance(40 * DAY)
    queue.retry(task.id)
    assert sweep(queue) == ["shipped"]
    queue.cancel(task.id)
    queue.advance(2 * HOUR)
    assert sweep(queue) == []


def test_a_fact_goes_before_a_task_that_was_submitted_later(queue: Face, patient: Any):
    queue.emit("shipped", "early")
    queue.advance(31 * DAY)
    patient.submit(100.0)
    queue.process_batch()
    queue.advance(2 * HOUR)
    assert sweep(queue) == []


def test_what_is_not_delivered_yet_and_what_somebody_waits_for_stays(queue: Face, patient: Any):
    queue.emit("shipped", "waited for")
    queue.sql("INSERT INTO tasklib_events (name, created_at) VALUES ('paid', '2029-01-01 00:00:00.000000')")
    queue.advance(40 * DAY)
    queue.do(_wait_for_shipped)
    queue.advance(2 * HOUR)
    assert sweep(queue) == ["shipped", "paid"]


def _wait_for_shipped() -> Operation[None]:
    waits = {"id": "00000000-0000-7000-8000-000000000001", "key": "wait:shipped", "events": '["shipped"]'}
    yield Statement("open_waits", waits)


def test_all_that_is_old_goes_in_small_steps(queue: Face, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(facts, "PAGE", 2)
    monkeypatch.setattr(facts, "LOOKED_AT", 2)
    for number in range(5):
        queue.emit(f"shipped:{number}", number)
        queue.task_in(Phase.COMPLETED)
    queue.advance(31 * DAY)
    waiting = queue.enqueue("job")
    queue.emit("new", None)
    assert sweep(queue) == ["new"]
    queue.advance(60 * DAY)
    assert sweep(queue) == ["new"], "a task that was submitted before it lives, behind all that have ended"
    queue.cancel(waiting)
    queue.advance(2 * HOUR)
    assert sweep(queue) == []


def test_within_an_hour_nobody_looks_again(queue: Face):
    queue.emit("shipped", None)
    queue.advance(31 * DAY)
    assert sweep(queue) == []
    queue.emit("paid", None)
    queue.sql("UPDATE tasklib_events SET created_at = '2029-01-01 00:00:00.000000'")
    assert sweep(queue) == ["paid"]
    queue.advance(HOUR + 1)
    assert sweep(queue) == []
