"""What waits and can run, by type, and how many workers it would take."""

from __future__ import annotations

from tasklib.core.insights.histogram import bucket_of
from tasklib.core.lifecycle import Phase
from tasklib.service.service import QueueService
from tasklib.service.statistics import Scale
from tasklib.storage.operations import statistics, workers
from tasklib.storage.operations.statistics import Done
from tests.fixtures.queues import Face


def scale(queue: Face, **asked: object) -> Scale:
    part = QueueService(queue.plain).statistics
    return queue.run_coroutine(part.ascale(**asked)) if queue.form == "awaiting" else part.scale(**asked)  # type: ignore[arg-type]


def test_due_tasks_count_and_later_or_finished_ones_do_not(queue: Face) -> None:
    for phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.BURIED, Phase.RETRYING, Phase.RUNNING):
        queue.task_in(phase)
    queue.enqueue("job", delay_seconds=3600)
    queue.enqueue("job")
    queue.enqueue("other", concurrency_key="k")

    found = scale(queue)
    assert {each.name: (each.due, each.running) for each in found.types} == {"job": (1, 1), "other": (1, 0)}
    assert (found.due, found.running, found.slots) == (2, 1, 3)


def test_a_retry_that_has_become_due_brings_workers_back(queue: Face) -> None:
    queue.task_in(Phase.RETRYING)
    assert scale(queue).workers == 0
    queue.advance(24 * 3600)
    [job] = scale(queue).types
    assert (job.due, job.workers) == (1, 1)
    assert job.oldest_seconds is not None
    assert job.oldest_seconds > 0


def test_types_that_are_asked_for_are_there_even_with_nothing_to_do(queue: Face) -> None:
    queue.enqueue("job")
    found = scale(queue, names=["idle"])
    assert [(each.name, each.due) for each in found.types] == [("idle", 0)]
    assert (found.due, found.workers) == (0, 0)


def test_durations_limits_and_pauses_decide(queue: Face) -> None:
    for name in ("slow", "capped", "held"):
        for _ in range(30):
            queue.enqueue(name)
    runs = {bucket_of(20.0): 4}
    queue.do(lambda: statistics.add_metrics([Done("slow", "completed", 4, {}, runs)]))
    queue.plain.set_concurrency_limit(2, name="capped")
    queue.plain.pause("held")

    found = {each.name: each for each in scale(queue, objective_seconds=10.0, slots_per_worker=5).types}
    assert found["slow"].seconds_per_task is not None
    assert abs(found["slow"].seconds_per_task - 20) < 2
    assert (found["slow"].slots, found["slow"].workers) == (30, 6)
    assert (found["capped"].slots, found["capped"].workers) == (2, 1)
    assert (found["held"].due, found["held"].paused, found["held"].workers) == (0, 30, 0)


def test_live_workers_tell_how_many_tasks_one_runs_at_once(queue: Face) -> None:
    queue.worker("job", worker_id="w1")
    queue.enqueue("job")
    found = scale(queue)
    [worker] = queue.workers()
    assert (found.workers_alive, found.slots_per_worker) == (1, worker.concurrency)
    assert found.seconds == 1.0 / worker.concurrency


def test_a_worker_that_is_stopping_counts_for_no_type(queue: Face) -> None:
    who = queue.worker("job", worker_id="w1")
    queue.worker("other", worker_id="w2")
    queue.enqueue("job")
    queue.do(lambda: workers.beat(who.instance, {"stopping": True}))

    types = QueueService(queue.plain).statistics.types()
    assert {each.name: each.workers for each in types} == {"job": 0, "other": 1}
    [job] = scale(queue).types
    assert (job.workers, job.workers_alive, job.seconds) == (1, 0, None)
