"""Seed 002, section 4: scheduler, executor and worker, in Python's spelling."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasklib import (
    Backoff,
    Config,
    ManualClock,
    Task,
    TaskQueue,
)
from tasklib.core.limits import TokenBucket
from tests.acceptance.seeds.support import OpenShell, advance, fail, read


def test_block_17_task_selection(queue: TaskQueue, shell: OpenShell) -> None:
    """4.2 Scheduler Module, task selection: what is due, oldest first; our column is `due_at` for both conditions."""
    outside = shell(queue)
    queue.clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    first, second = queue.enqueue("a"), queue.enqueue("b")
    queue.enqueue("c", delay_seconds=3600)

    rows = outside.choose(
        postgres="SELECT id FROM tasks WHERE due_at <= NOW() ORDER BY created_at ASC, seq LIMIT 10",
        sqlite="SELECT id FROM tasks WHERE due_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')"
        " ORDER BY created_at ASC, seq LIMIT 10",
    )

    assert [str(task_id) for (task_id,) in rows] == [str(first), str(second)]


def test_block_18_the_formula_of_the_retry_strategy() -> None:
    """4.2 Scheduler Module, retry strategy: `min(10 * 2^attempts, 21600)`, spread by 20 % to both sides."""
    config = Config("sqlite:///:memory:", base_retry_delay_seconds=10)

    assert [config.backoff.mean(attempts) for attempts in range(4)] == [10, 20, 40, 80]
    assert config.backoff.mean(50) == 21600
    spread = [Backoff(base=10, rng=lambda end=end: end)(0) for end in (0.0, 1.0)]
    assert spread == [8, 12]


def test_block_18_the_examples_of_the_retry_strategy() -> None:
    """4.2 Scheduler Module, retry strategy: the printed ranges grow by four, and so does a multiplier of four."""
    printed = [(8, 12), (32, 48), (2.1 * 60, 3.1 * 60), (8.5 * 60, 12.7 * 60), (34.1 * 60, 51.1 * 60)]

    for attempts, (least, most) in enumerate(printed):
        low, high = (Backoff(base=10, multiplier=4, rng=lambda end=end: end)(attempts) for end in (0.0, 1.0))
        assert (low, high) == (pytest.approx(least, rel=0.04), pytest.approx(most, rel=0.04))


def test_block_19_token_bucket() -> None:
    """4.2 Scheduler Module, rate limiting: at 10 a second ten start at once, then one every 100 ms."""
    now = 0.0
    bucket = TokenBucket(10, clock=lambda: now)

    assert bucket.available == 10
    bucket.take(10)
    assert (bucket.available, bucket.next_in) == (0, pytest.approx(0.1))
    now += 0.1001
    assert bucket.available == 1
    bucket.take(1)
    now += 60
    assert bucket.available == 10


CLAIM = """
UPDATE tasks
SET state = 'running',
    version = version + 1,
    started_at = {now},
    attempts = attempts + 1,
    updated_at = {now},
    next_retry_at = NULL,
    locked_until = {later}
WHERE id = '{id}'
  AND state IN ('pending', 'failed')
  AND version = {version}
"""


CLOCKS = {
    "postgres": {"now": "NOW()", "later": "NOW() + INTERVAL '5 minutes'"},
    "sqlite": {"now": "datetime('now')", "later": "datetime('now', '+5 minutes')"},
}


def test_block_20_only_one_claim_of_a_version_succeeds(queue: TaskQueue, shell: OpenShell) -> None:
    """4.3 Executor Module, optimistic locking: of two claims of the same version, one changes a row."""
    outside = shell(queue)
    task = read(queue, queue.enqueue("send_email"))
    claim = CLAIM.format(id=task.id, version=task.version, **CLOCKS[outside.dialect])

    changed = [outside.run(claim), outside.run(claim)]

    assert changed == [[(1,)], [(0,)]]
    claimed = read(queue, task.id)
    assert (claimed.state, claimed.version, claimed.attempts) == ("running", 1, 1)


def test_block_21_recovery_by_hand(queue: TaskQueue, shell: OpenShell) -> None:
    """4.3 Executor Module, stale task recovery: find what runs for too long, reset it, and it runs again."""
    outside = shell(queue)
    queue.clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))
    task = read(queue, queue.enqueue("send_email"))
    before = {"now": "NOW() - INTERVAL '6 minutes'", "later": "NOW()"}
    if outside.dialect == "sqlite":
        before = {"now": "datetime('now', '-6 minutes')", "later": "datetime('now')"}
    outside.run(CLAIM.format(id=task.id, version=0, **before))

    limit = {"postgres": "NOW() - INTERVAL '5 minutes'", "sqlite": "datetime('now', '-5 minutes')"}[outside.dialect]
    stale = outside.run(f"SELECT id FROM tasks WHERE state = 'running' AND started_at < {limit} LIMIT 100")
    reset = outside.run(
        f"UPDATE tasks SET state = 'pending', next_retry_at = NULL, updated_at = {CLOCKS[outside.dialect]['now']}"
        f" WHERE id = '{task.id}' AND state = 'running' AND started_at < {limit}"
    )
    queue.register_handler("send_email", lambda payload: "sent")
    queue.process_batch()

    assert [str(task_id) for (task_id,) in stale] == [str(task.id)]
    assert reset == [(1,)]
    assert (read(queue, task.id).result, read(queue, task.id).attempts) == ({"value": "sent"}, 2)


def test_block_21_recovery_by_the_queue(queue: TaskQueue, shell: OpenShell) -> None:
    """4.3 Executor Module, stale task recovery: `recover_stale_tasks` does it, and counts the lost attempt."""
    outside = shell(queue)
    task_id = queue.enqueue("send_email")
    outside.run(CLAIM.format(id=task_id, version=0, **CLOCKS[outside.dialect]))
    advance(queue, minutes=6)

    assert queue.recover_stale_tasks() == 1

    task = read(queue, task_id)
    assert (task.state, task.attempts, task.retry_count) == ("pending", 1, 1)
    assert (task.error or "").startswith("WorkerLost")


def test_block_22_a_type_without_a_handler_is_left_alone(queue: TaskQueue) -> None:
    """4.3 Executor Module, execution flow, step 2: no handler, no claim; the task stays for a worker that has one."""
    task_id = queue.enqueue("nobody.knows")

    assert queue.process_batch() == 0

    assert (read(queue, task_id).state, read(queue, task_id).attempts) == ("pending", 0)


def test_block_22_the_last_attempt_is_terminal(queue: TaskQueue) -> None:
    """4.3 Executor Module, execution flow, step 3: an error sets next_retry_at, at the last attempt completed_at."""
    queue.register_handler("test", fail)
    task_id = queue.enqueue("test", max_attempts=2)

    queue.process_batch()
    first = read(queue, task_id)
    advance(queue, minutes=1)
    queue.process_batch()
    last = read(queue, task_id)

    assert (first.next_retry_at is not None, first.completed_at) == (True, None)
    assert (last.next_retry_at, last.completed_at is not None) == (None, True)


async def test_block_22_a_late_finish_is_refused(
    queue: TaskQueue, shell: OpenShell, caplog: pytest.LogCaptureFixture
) -> None:
    """4.3 Executor Module, execution flow, step 4: a task taken over meanwhile keeps what happened since."""
    outside = shell(queue)

    async def handler(task: Task) -> str:
        outside.run(f"UPDATE tasks SET version = version + 1 WHERE id = '{task.id}'")
        return "too late"

    queue.register_handler("test", handler)
    task_id = await queue.aenqueue("test")
    await queue.aprocess_batch()

    task = read(queue, task_id)
    assert (task.state, task.result) == ("running", None)
    assert "refused" in caplog.text


def test_block_23_worker_loop(queue: TaskQueue) -> None:
    """4.4 Worker Module, worker loop: recover, stop at a pause, then process what is due; limits come later."""
    queue.register_handler("test", lambda payload: None)
    for _ in range(3):
        queue.enqueue("test")

    assert queue.recover_stale_tasks() == 0
    queue.pause()
    assert queue.process_batch() == 0
    queue.resume()
    assert queue.process_batch() == 3


def test_block_24_pause_behavior(queue: TaskQueue) -> None:
    """4.4 Worker Module, pause behavior: nothing is executed, everything can be asked, resuming needs no restart."""
    queue.register_handler("test", lambda payload: "done")
    queue.pause(by="anna", reason="maintenance window")
    task_id = queue.enqueue("test")

    assert (queue.process_batch(), queue.is_paused(), queue.stats().pending) == (0, True, 1)
    assert [(pause.by, pause.reason) for pause in queue.pauses()] == [("anna", "maintenance window")]

    queue.resume()
    assert queue.process_batch() == 1
    assert read(queue, task_id).result == {"value": "done"}


async def test_block_25_parallelism(queue: TaskQueue) -> None:
    """4.4 Worker Module, parallelism: one at a time unless told otherwise, N at a time when told so."""
    running, most = 0, 0
    together = asyncio.Event()

    async def handler(payload: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == payload["until"]:
            together.set()
        await asyncio.wait_for(together.wait(), 180)
        running -= 1

    queue.register_handler("test", handler)
    for concurrency, number in ((1, 3), (3, 3)):
        together.clear()
        most = 0
        ids = [await queue.aenqueue("test", {"until": concurrency}) for _ in range(number)]
        worker = asyncio.ensure_future(queue.arun(concurrency=concurrency, signals=False))
        for task_id in ids:
            await queue.await_(task_id, timeout=180)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert most == concurrency
