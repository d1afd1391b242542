"""Seed 004, the executor: its one code block, on every database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasklib import TaskQueue
from tests.acceptance.seeds.support import Shell

OpenShell = Callable[[TaskQueue], Shell]

RESERVE = """
WITH locked_tasks AS (
  SELECT id FROM tasks
  WHERE state = 'pending'
  ORDER BY seq
  LIMIT {limit}
  FOR UPDATE SKIP LOCKED
)
UPDATE tasks
SET state = 'running', version = version + 1, attempts = attempts + 1, started_at = NOW(),
    locked_until = NOW() + INTERVAL '10 minutes'
WHERE id IN (SELECT id FROM locked_tasks)
RETURNING id
"""
"""`Ready` is `pending` here and `Reserved` is `running`, which needs a lease; insertion order is `seq`, not `id`."""

RESERVE_SQLITE = """
UPDATE tasks
SET state = 'running', version = version + 1, attempts = attempts + 1, started_at = datetime('now'),
    locked_until = datetime('now', '+10 minutes')
WHERE id IN (SELECT id FROM tasks WHERE state = 'pending' ORDER BY seq LIMIT {limit})
RETURNING id
"""
"""SQLite has one writer at a time, so there is nothing to skip."""


def test_block_01_reserve_a_batch(queue: TaskQueue, shell: OpenShell) -> None:
    """Possible Solution: the first hundred tasks that are ready become reserved, in order of insertion."""
    outside = shell(queue)
    ids = [queue.enqueue("test") for _ in range(101)]

    outside.run("BEGIN")
    reserved = outside.choose(postgres=RESERVE.format(limit=100), sqlite=RESERVE_SQLITE.format(limit=100))
    outside.run("COMMIT")

    assert {str(task_id) for (task_id,) in reserved} == {str(task_id) for task_id in ids[:100]}
    assert (queue.count(state="running"), queue.count(state="pending")) == (100, 1)


@pytest.mark.backends("postgres")  # SQLite has no two writers at once
def test_block_01_two_executors_never_reserve_the_same_task(queue: TaskQueue, shell: OpenShell) -> None:
    """Possible Solution: while one transaction is open, another skips the rows it has locked."""
    one, other = shell(queue), shell(queue)
    for _ in range(10):
        queue.enqueue("test")

    one.run("BEGIN")
    first = one.run(RESERVE.format(limit=5))
    second = other.run(RESERVE.format(limit=100))
    one.run("COMMIT")

    assert (len(first), len(second)) == (5, 5)
    assert not set(first) & set(second)


async def test_block_01_the_library_reserves_in_batches(queue: TaskQueue) -> None:
    """Possible Solution: what the statement does by hand, one claim of a worker does for 150 tasks."""
    queue.register_handler("test", lambda payload: None)
    for _ in range(150):
        await queue.aenqueue("test")

    assert await queue.aprocess_batch() == 150
    assert await queue.acount(state="completed") == 150
