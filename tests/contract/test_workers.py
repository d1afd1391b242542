"""Worker instances: known while they answer, declared dead when they do not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tasklib import TaskState
from tasklib.storage.operations import workers
from tasklib.storage.operations.worker_history import list_ended_workers
from tests.fixtures.queues import Face, Instance


def test_a_registered_instance_is_listed_as_it_is(queue: Face):
    worker = queue.worker("a", "b", worker_id="w-7", host="host-b", pid=99)

    (info,) = queue.workers()
    assert (info.instance, info.worker_id, info.host, info.pid) == (worker.instance, "w-7", "host-b", 99)
    assert (info.names, info.concurrency, info.running, info.alive) == (("a", "b"), 4, 0, True)
    assert info.started_at == info.heartbeat_at == queue.now


def test_the_list_says_how_many_tasks_each_runs(queue: Face):
    one, two = queue.worker(), queue.worker()
    for _ in range(3):
        queue.enqueue("job")
    one.claim(2)
    two.complete(two.take())

    assert {info.instance: info.running for info in queue.workers()} == {one.instance: 2, two.instance: 0}


def test_a_heartbeat_is_kept_and_the_latest_comes_first(queue: Face):
    one, two = queue.worker(), queue.worker()
    queue.advance(5)

    assert one.beat() is True

    assert [info.instance for info in queue.workers()] == [one.instance, two.instance]
    assert queue.workers()[0].heartbeat_at == queue.now


def test_a_heartbeat_tells_how_the_worker_is_and_the_last_word_holds(queue: Face):
    worker = queue.worker()
    worker.beat(memory_bytes=4096, stuck_threads=1, retention="completed=7d")
    worker.beat()

    (info,) = queue.workers()
    assert (info.memory_bytes, info.stuck_threads, info.retention) == (4096, 1, "completed=7d")


def test_an_unknown_instance_has_no_heartbeat(queue: Face):
    assert queue.worker(registered=False).beat() is False


def test_an_instance_that_signs_off_is_gone(queue: Face, worker: Instance):
    worker.forget()

    assert queue.workers() == []
    assert worker.beat() is False


def test_an_instance_counts_as_alive_until_its_own_timeout(queue: Face):
    queue.worker(worker_id="patient", timeout_seconds=60)
    queue.worker(worker_id="hasty", timeout_seconds=10)
    queue.advance(10.01)

    assert {info.worker_id: info.alive for info in queue.workers()} == {"patient": True, "hasty": False}


def test_nobody_is_recovered_before_the_timeout(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.take(task_id)
    queue.advance(worker.timeout_seconds - 0.01)

    assert queue.recover() == 0
    assert queue.read(task_id).state == TaskState.RUNNING
    assert len(queue.workers()) == 1


def test_heartbeats_keep_an_instance_alive(queue: Face, worker: Instance):
    worker.take(queue.enqueue("job"))
    for _ in range(10):
        queue.advance(worker.timeout_seconds - 1)
        assert worker.beat()
        assert queue.recover() == 0


def test_a_silent_instance_is_removed_and_its_tasks_taken_back(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(3)]
    worker.claim(2)
    queue.advance(worker.timeout_seconds + 0.01)

    assert queue.recover() == 2

    assert queue.workers() == []
    assert queue.worker().claim_ids() == ids


def test_a_silent_instance_without_tasks_is_removed_too(queue: Face, worker: Instance):
    queue.advance(worker.timeout_seconds + 0.01)

    assert queue.recover() == 0
    assert queue.workers() == []


def test_the_living_keep_what_they_hold(queue: Face):
    dead, alive = queue.worker(), queue.worker()
    lost, kept = queue.enqueue("job"), queue.enqueue("job")
    dead.take(lost)
    alive.take(kept)
    queue.advance(20)
    alive.beat()
    queue.advance(20)

    assert queue.recover_stale_tasks() == 1
    assert [queue.read(each).state.value for each in (lost, kept)] == ["pending", "running"]


def test_a_reused_worker_id_hides_nothing(queue: Face):
    before = queue.worker(worker_id="pod-0", host="old")
    lost = queue.enqueue("job")
    before.take(lost)
    queue.advance(20)
    after = queue.worker(worker_id="pod-0", host="new")
    kept = queue.enqueue("job")
    after.take(kept)
    queue.advance(20)

    assert queue.recover() == 1

    assert [queue.read(each).state.value for each in (lost, kept)] == ["pending", "running"]
    assert [info.instance for info in queue.workers()] == [after.instance]
    assert "on old (pid" in queue.read(lost).error


def test_what_a_finished_claim_left_behind_is_not_taken_back(queue: Face, worker: Instance):
    for _ in range(3):
        queue.enqueue("job")
    done, failed, released = worker.claim(3).tasks
    worker.complete(done)
    worker.fail(failed)
    worker.release(released)
    other = queue.worker(timeout_seconds=600)
    other.take(released.id)
    queue.advance(worker.timeout_seconds + 1)

    assert queue.recover() == 0
    assert queue.read(released.id).state == TaskState.RUNNING


def test_recoverers_at_the_same_moment_take_each_task_once(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(50)]
    worker.claim(50)
    queue.advance(worker.timeout_seconds + 1)
    plain, backoff = queue.plain, queue.plain.config.backoff
    seen = queue.do(lambda: workers.look_for_silent())

    def recover(_: int) -> int:
        return plain.database.run(lambda: workers.recover_silent(seen, backoff)).tasks

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(recover, range(8))) == 50
    assert {(task.retry_count, task.lost_count) for task in map(queue.read, ids)} == {(1, 1)}


def test_what_became_of_a_worker_is_kept_for_a_week(queue: Face):
    lost = queue.worker(worker_id="w-1", timeout_seconds=5)
    brief, stopped = queue.worker(worker_id="w-2"), queue.worker(worker_id="w-3")
    for _ in range(3):
        queue.enqueue("job")
    lost.beat(release="v7")
    lost.claim(3)
    brief.forget()  # as for a single batch: not worth a line
    queue.advance(20)
    stopped.forget()
    assert queue.recover() == 3

    ended = {each.worker_id: each for each in queue.do(lambda: list_ended_workers(seconds=60))}
    assert set(ended) == {"w-1", "w-3"}
    assert (ended["w-1"].ending, ended["w-1"].tasks, ended["w-1"].release) == ("lost", 3, "v7")
    assert (ended["w-3"].ending, ended["w-3"].tasks, ended["w-3"].release) == ("stopped", 0, None)
    assert ended["w-1"].ended_at == queue.now

    queue.advance(7 * 86_400)
    assert len(queue.do(lambda: list_ended_workers(seconds=8 * 86_400))) == 2
    last = queue.worker(worker_id="w-4")
    queue.advance(60)
    last.forget()
    assert [each.worker_id for each in queue.do(lambda: list_ended_workers(seconds=8 * 86_400))] == ["w-4"]
