"""The lines a task logs, kept on its row: the latest of all its attempts, in order."""

from __future__ import annotations

from tasklib.core.task import LogLine
from tests.fixtures.queues import Face, Instance


def test_lines_are_kept_in_order_with_level_attempt_and_time(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.log(task, "first", "second")
    worker.log(task, "third")

    assert queue.read(task.id).log == (
        LogLine(1, 0.0, "INFO", "first"),
        LogLine(1, 1.0, "INFO", "second"),
        LogLine(1, 0.0, "INFO", "third"),
    )


def test_the_lines_of_earlier_attempts_stay(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.log(task, "before")
    worker.fail(task, delay=0)
    worker.log(worker.take(task.id), "after")

    assert [(line.attempt, line.text) for line in queue.read(task.id).log] == [(1, "before"), (2, "after")]


def test_the_latest_two_hundred_are_kept(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.log(task, *(f"line {n}" for n in range(150)))
    worker.log(task, *(f"line {n}" for n in range(150, 230)))

    assert [line.text for line in queue.read(task.id).log] == [f"line {n}" for n in range(30, 230)]


def test_one_batch_longer_than_that_keeps_its_end(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.log(task, *(f"line {n}" for n in range(250)))

    assert [line.text for line in queue.read(task.id).log] == [f"line {n}" for n in range(50, 250)]


def test_a_completion_that_was_faster_does_not_lose_the_last_lines(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.complete(task)
    worker.log(task, "last words")

    assert [line.text for line in queue.read(task.id).log] == ["last words"]


def test_text_comes_back_as_it_was(queue: Face, worker: Instance):
    lines = ("é \U0001f600", 'it\'s "quoted" \\ %s :x', "", '["not", "json"]', "a\nb")
    task = queue.enqueue("job") and worker.take()
    worker.log(task, *lines)

    assert tuple(line.text for line in queue.read(task.id).log) == lines


def test_logging_changes_nothing_else(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    before = queue.read(task.id)
    queue.advance(5)
    worker.log(task, "line")

    after = queue.read(task.id)
    assert (after.version, after.state, after.locked_until, after.updated_at) == (
        before.version,
        before.state,
        before.locked_until,
        before.updated_at,
    )
