"""Claiming: what is due, best first, never more than asked, and never twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from tasklib import TaskState
from tasklib.core.lifecycle import Phase
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import LEASE_SECONDS, Face, Instance
from tests.fixtures.waiting import eventually

WAITING_FOR_A_LOCK = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_a_claimed_task_runs_under_a_lease_and_a_new_version(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", {"n": 1})

    claimed = worker.take(task_id)

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.version) == (TaskState.RUNNING, 1, 1)
    assert (task.worker_id, task.started_at) == (worker.worker_id, queue.now)
    assert task.locked_until == queue.now + timedelta(seconds=LEASE_SECONDS)
    assert (claimed.version, claimed.attempts, claimed.kwargs) == (1, 1, {"n": 1})


def test_the_claim_answers_the_whole_task(queue: Face, worker: Instance):
    task_id = queue.enqueue(
        "job",
        {"n": [1, {"deep": None}]},
        priority=3,
        tags={"batch": "daily"},
        headers={"tenant": "t-7"},
        timeout_seconds=2.5,
        unique_key="u",
        concurrency_key="c",
        expires_at=queue.now + timedelta(hours=1),
        max_retries=7,
    )

    answered = worker.take(task_id).task(worker.worker_id)

    assert answered == queue.read(task_id)


def test_order_is_priority_then_due_time_then_insertion_across_names(queue: Face):
    worker = queue.worker("a", "b", "c")
    low = queue.enqueue("a", priority=-1)
    late = queue.enqueue("b", run_after=queue.now - timedelta(seconds=1))
    early = queue.enqueue("c", run_after=queue.now - timedelta(seconds=2))
    first, second = queue.enqueue("b"), queue.enqueue("a")
    high = queue.enqueue("c", priority=1)

    assert worker.claim_ids() == [high, early, late, first, second, low]


def test_order_holds_from_claim_to_claim(queue: Face):
    worker = queue.worker("a", "b")
    ids = [queue.enqueue(name, priority=priority) for name in "ab" for priority in (1, 2)]

    claimed = [each for _ in range(4) for each in worker.claim_ids(1)]

    assert claimed == [ids[1], ids[3], ids[0], ids[2]]


def test_a_retry_takes_its_place_by_the_time_it_became_due(queue: Face, worker: Instance):
    retried = queue.enqueue("job")
    worker.fail(worker.take(retried), delay=10)
    queue.advance(5)
    before = queue.enqueue("job")
    queue.advance(10)
    after = queue.enqueue("job")

    assert worker.claim_ids() == [before, retried, after]


def test_equal_tasks_are_claimed_in_insertion_order(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(5)]

    assert worker.claim_ids() == ids


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_never_more_than_asked(queue: Face, limit: int):
    worker = queue.worker("a", "b")
    for name, priority in (("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 0)):
        queue.enqueue(name, priority=priority)

    assert len(worker.claim(limit).tasks) == limit
    assert queue.count(state="running") == limit


def test_only_the_names_given(queue: Face):
    worker = queue.worker("a", "b")
    queue.enqueue("other", priority=100)
    wanted = queue.enqueue("b")

    assert worker.claim_ids() == [wanted]


def test_no_names_claim_nothing(queue: Face, worker: Instance):
    queue.enqueue("job")

    assert worker.claim(names=[]).tasks == []


@pytest.mark.parametrize("phase", [Phase.RUNNING, *(p for p in Phase if p not in (Phase.PENDING, Phase.RUNNING))])
def test_what_is_not_due_is_not_claimed(queue: Face, worker: Instance, phase: Phase):
    queue.task_in(phase)

    assert worker.claim().tasks == []


def test_a_future_task_waits_until_its_moment(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", delay_seconds=10, priority=100)

    assert worker.claim_ids() == []
    queue.advance(9.999)
    assert worker.claim_ids() == []
    queue.advance(0.001)
    assert worker.claim_ids() == [task_id]


def test_a_future_task_of_higher_priority_does_not_hide_a_due_one(queue: Face, worker: Instance):
    queue.enqueue("job", delay_seconds=10, priority=100)
    due = queue.enqueue("job")

    assert worker.claim_ids() == [due]


def test_a_retry_is_claimed_when_its_time_has_come(queue: Face, worker: Instance):
    task = queue.task_in(Phase.RETRYING)

    queue.advance(60)

    assert worker.claim_ids() == [task.id]
    again = queue.read(task.id)
    assert (again.attempts, again.retry_count, again.version, again.next_retry_at) == (2, 1, 2, None)


def test_an_expired_task_is_cancelled_instead_of_run(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", expires_at=queue.now + timedelta(seconds=5))
    queue.advance(5)

    assert worker.claim().tasks == []

    task = queue.read(task_id)
    assert (task.state, task.completed_at, task.attempts) == (TaskState.CANCELLED, queue.now, 0)
    assert (task.started_at, task.worker_id, task.locked_until) == (None, None, None)
    assert "expires_at" in task.error
    assert worker.holds() == []


def test_before_its_expiry_a_task_runs(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", expires_at=queue.now + timedelta(seconds=5))
    queue.advance(4.999)

    assert worker.claim_ids() == [task_id]


def test_a_batch_of_expired_tasks_asks_to_be_repeated(queue: Face, worker: Instance):
    queue.enqueue("job", priority=1, expires_at=queue.now)
    behind = queue.enqueue("job")

    assert worker.claim(1).contended
    assert worker.claim_ids(1) == [behind]


def test_an_unregistered_instance_claims_nothing_and_is_told(queue: Face):
    stranger = queue.worker(registered=False)
    task_id = queue.enqueue("job")

    claimed = stranger.claim()

    assert (claimed.tasks, claimed.registered) == ([], False)
    assert queue.read(task_id).state == TaskState.PENDING


def test_a_registered_instance_is_told_so_even_without_work(worker: Instance):
    assert worker.claim().registered


def test_two_instances_share_without_overlap(queue: Face):
    one, two = queue.worker(), queue.worker()
    ids = [queue.enqueue("job") for _ in range(4)]

    assert one.claim_ids(2) + two.claim_ids(10) == ids


def test_instances_that_claim_at_the_same_moment_never_get_the_same_task(queue: Face):
    queue.via(queue.plain.task(name="job")(_take_number)).submit_many({"n": n} for n in range(200))
    plain = [_blocking(queue, each) for each in (queue.worker() for _ in range(4))]

    def drain(worker: Instance) -> list[str]:
        mine = []
        while (claimed := worker.claim(7)).tasks or claimed.contended:
            mine += [task.id for task in claimed.tasks]
        return mine

    with ThreadPoolExecutor(4) as threads:
        claimed = [task_id for part in threads.map(drain, plain) for task_id in part]

    assert len(claimed) == len(set(claimed)) == 200


@pytest.mark.backends("postgres")
def test_a_claim_that_misses_a_row_written_meanwhile_says_that_more_may_be_due(queue: Face):
    first, second, third = (queue.enqueue("job", {"n": n}) for n in range(3))
    worker = _blocking(queue, queue.worker())
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(libpq_url(queue.url)) as other:
            # The claim has seen the rows as they are when it comes to a halt here, before it locks them.
            other.execute("SELECT FROM tasklib_claims FOR UPDATE")
            claim = threads.submit(worker.claim, 2)
            eventually(lambda: queue.sql(WAITING_FOR_A_LOCK))
            other.execute("UPDATE tasks SET kwargs = '{}' WHERE id = %s", [first])
        claimed = claim.result()

    assert ([task.id for task in claimed.tasks], claimed.exhausted) == ([str(second)], False)
    assert worker.claim_ids() == [first, third]


def test_the_next_due_moment_is_told_when_nothing_is_due(queue: Face, worker: Instance):
    queue.enqueue("job", delay_seconds=90)
    queue.enqueue("job", delay_seconds=30, priority=-5)
    queue.enqueue("other", delay_seconds=3)

    assert worker.claim().next_due_in == pytest.approx(30, abs=0.001)


def test_the_next_due_moment_is_told_beside_what_is_due(queue: Face, worker: Instance):
    """It has the name and the priority of what is taken, and is found behind it."""
    queue.enqueue("job", delay_seconds=30)
    task_id = queue.enqueue("job")
    queue.enqueue("job", delay_seconds=60)

    claimed = worker.claim(2)

    assert [task.id for task in claimed.tasks] == [str(task_id)]
    assert claimed.next_due_in == pytest.approx(30, abs=0.001)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("due", ["later", "another", "more urgent", "of another name"])
def test_a_claim_of_a_single_task_takes_the_best_and_says_whether_more_is_due(queue: Face, due: str):
    """Only PostgreSQL has a smaller statement for it."""
    worker = queue.worker("job", "zoo")
    first = queue.enqueue("job", priority=3)
    match due:
        case "another":
            queue.enqueue("job", priority=3)
        case "more urgent":
            first = queue.enqueue("job", priority=9)
        case "of another name":
            queue.enqueue("zoo")
        case _:
            queue.enqueue("job", priority=3, delay_seconds=30)
            queue.enqueue("zoo", delay_seconds=60)

    claimed = worker.claim(1)

    assert worker.holds() == [(task.id, task.version) for task in claimed.tasks] == [(str(first), 1)]
    assert claimed.exhausted == (due == "later")
    assert claimed.next_due_in == (pytest.approx(30, abs=0.001) if due == "later" else pytest.approx(0, abs=0.001))


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("state", ["paused", "keyed", "expired", "locked", "declared dead"])
def test_where_more_than_order_decides_a_claim_of_a_single_task_decides_as_every_other(queue: Face, state: str):
    worker = queue.worker()
    options = {"keyed": {"concurrency_key": "k"}, "expired": {"expires_at": queue.now + timedelta(seconds=1)}}
    task_id = queue.enqueue("job", **options.get(state, {}))
    with psycopg.connect(libpq_url(queue.url)) as other:
        match state:
            case "paused":
                queue.pause("job")
            case "expired":
                queue.advance(2)
            case "locked":
                other.execute("SELECT FROM tasks FOR UPDATE")
            case "declared dead":
                other.execute("DELETE FROM tasklib_claims")
                other.commit()
        claimed = worker.claim(1)

    assert [task.id for task in claimed.tasks] == ([str(task_id)] if state == "keyed" else [])
    assert claimed.contended == (state in ("locked", "expired"))  # it is not the last to be looked at
    assert claimed.registered == (state != "declared dead")
    assert queue.read(task_id).state == {"expired": "cancelled", "keyed": "running"}.get(state, "pending")


def test_a_retry_counts_for_the_next_due_moment(queue: Face, worker: Instance):
    queue.task_in(Phase.RETRYING)

    assert worker.claim().next_due_in == pytest.approx(60, abs=0.001)


def test_without_waiting_tasks_there_is_no_next_due_moment(queue: Face, worker: Instance):
    queue.task_in(Phase.COMPLETED)

    assert worker.claim().next_due_in is None


def test_a_paused_name_has_no_next_due_moment(queue: Face, worker: Instance):
    queue.enqueue("job", delay_seconds=30)
    queue.pause("job")

    assert worker.claim().next_due_in is None


def test_what_an_instance_holds_is_known_to_the_database(queue: Face, worker: Instance):
    for _ in range(3):
        queue.enqueue("job")
    first, second = worker.claim(2).tasks
    worker.complete(first)
    (third,) = worker.claim(2).tasks

    assert worker.holds() == sorted([(second.id, second.version), (third.id, third.version)])


def test_an_id_that_nobody_registered_holds_nothing(queue: Face):
    stranger = queue.worker(registered=False)
    stranger.instance = uuid4()

    assert stranger.holds() == []


@pytest.mark.backends("postgres")
def test_a_claim_goes_on_where_the_last_left_off_and_else_begins_anew(queue: Face, worker: Instance):
    """Only PostgreSQL keeps claimed tasks in the index for a while."""
    for n in range(5):
        queue.enqueue("job", {"n": n})
    first = worker.claim(2)
    queue.enqueue("job", {"n": "urgent"}, priority=9)

    second = worker.claim(2, after=first.last)
    assert [task.kwargs["n"] for task in second.tasks] == [2, 3]
    third = worker.claim(2, after=second.last)
    assert ([task.kwargs["n"] for task in third.tasks], third.last) == ([4], ())
    assert [task.kwargs["n"] for task in worker.claim(2, after=second.last).tasks] == ["urgent"]


@pytest.mark.backends("postgres")
def test_a_claim_goes_on_in_order_over_several_names_and_priorities(queue: Face):
    worker = queue.worker("a", "b")
    for name, priority, number in [
        ("a", 0, 5),
        ("b", 0, 6),
        ("a", 3, 2),
        ("b", 3, 3),
        ("a", 0, 7),
        ("b", 7, 1),
        ("b", 3, 4),
    ]:
        queue.enqueue(name, {"n": number}, priority=priority)
    taken, after = [], ()
    while claimed := worker.claim(2, after=after):
        taken += [task.kwargs["n"] for task in claimed.tasks]
        after = claimed.last
        if not after:
            break

    assert taken == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.backends("postgres")
def test_what_is_due_in_very_many_names_is_looked_at_anew_each_time(queue: Face):
    names = [f"job.{n}" for n in range(17)]
    worker = queue.worker(*names)
    for name in [*names, *names]:
        queue.enqueue(name)

    assert worker.claim(2).last == ()


def _take_number(n: int) -> None: ...


def _blocking(queue: Face, worker: Instance) -> Instance:
    """The same instance for use in a thread, where the test's event loop is not."""
    worker.queue = Face(queue.plain, "blocking", queue.url)
    return worker
