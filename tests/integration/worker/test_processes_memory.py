"""Memory limits of child processes, which are interpreters of their own here: one that is a fork begins with more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasklib import Config, TaskQueue, TaskState
from tests.programs import process_tasks as tasks
from tests.programs.processes import read, working

pytestmark = pytest.mark.backends("sqlite-file")


@pytest.fixture
def queue(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskQueue]:
    """The queue of `process_tasks` on the test's database; what fails is tried again at once."""
    monkeypatch.setenv("PROCESS_TASKS_URL", database_url)
    with TaskQueue(
        Config(database_url=database_url, base_retry_delay_seconds=0), registry=tasks.queue.registry
    ) as queue:
        yield queue


def test_the_memory_limit_is_named_when_the_function_reaches_it(queue: TaskQueue) -> None:
    task_id = queue.enqueue("eat_memory", max_attempts=1)
    queue.process_batch()

    task = read(queue, task_id)
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert "MemoryError" in task.error
    assert task.error.endswith("memory limit of 300 MiB reached")


def test_the_memory_limit_is_named_when_the_process_dies_of_it(queue: TaskQueue) -> None:
    task_id = queue.enqueue("die_of_memory", max_attempts=1)
    queue.process_batch()

    task = read(queue, task_id)
    assert task.state is TaskState.BURIED
    assert task.error is not None
    assert task.error.endswith("memory limit of 300 MiB reached")


def test_a_worker_can_limit_every_process(queue: TaskQueue) -> None:
    task_id = queue.enqueue("eat", {"mib": 400}, max_attempts=1)
    with working(queue, memory_limit_mb=350):
        task = queue.wait(task_id)

    assert "memory limit of 350 MiB reached" in str(task.error)


def test_a_limit_below_what_python_needs_is_named_with_the_remedy(queue: TaskQueue) -> None:
    task_id = queue.enqueue("eat", {"mib": 1}, max_attempts=1)
    with working(queue, memory_limit_mb=1):
        task = queue.wait(task_id, 60)

    assert task.state is TaskState.FAILED
    assert "its memory limit is 1 MiB, and it had used " in str(task.error)
    assert str(task.error).endswith("give memory_limit_mb or --memory-limit more than that")


def test_tasks_of_different_limits_share_no_process(queue: TaskQueue) -> None:
    with working(queue, concurrency=1):
        states = [queue.wait(queue.enqueue(name, max_attempts=1)).state for name in ("where", "eat_memory", "where")]

    assert states == [TaskState.COMPLETED, TaskState.FAILED, TaskState.COMPLETED]
