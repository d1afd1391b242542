"""Why isn't it running?  Each reason, with its numbers, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tasklib import ManualClock, TaskId, TaskNotFound, TaskQueue
from tasklib.core.insights.explain import MAX_AHEAD
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Completion
from tasklib.storage.operations import attempts, claims, workers
from tasklib.storage.operations.workers import Registration
from tasklib.storage.rows import ClaimedTask

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


class Bench:
    """A queue whose clock stands still, and workers that exist only in the database."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(START)
        self.queue = TaskQueue(url, clock=self.clock)

    def worker(self, *names: str, concurrency: int = 1, worker_id: str = "w1", timeout: float = 30) -> Registration:
        who = Registration(uuid4(), worker_id, "host", 1, timeout, concurrency, names)
        self.queue.database.run(lambda: workers.register_worker(who))
        return who

    def claim(self, who: Registration, limit: int = 1) -> list[ClaimedTask]:
        return self.queue.database.run(
            lambda: claims.claim_tasks(
                claims.Claim(
                    instance=who.instance,
                    worker_id=who.worker_id,
                    names=who.names,
                    limit=limit,
                    lease_seconds=600,
                    held=[],
                )
            )
        ).tasks

    def codes(self, task_id: TaskId) -> list[str]:
        return [reason.code for reason in self.queue.explain(task_id).reasons]

    def text(self, task_id: TaskId) -> str:
        return str(self.queue.explain(task_id))


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    bench = Bench(database_url)
    yield bench
    bench.queue.close()


def test_a_task_nobody_knows(bench: Bench) -> None:
    bench.worker("mail", "report", worker_id="w7")
    task_id = bench.queue.enqueue("crawl")
    assert bench.codes(task_id) == ["no_worker"]
    assert "no live worker knows tasks named 'crawl' (workers seen: w7 (mail, report))" in bench.text(task_id)


def test_a_worker_that_knew_it_and_fell_silent_is_named(bench: Bench) -> None:
    bench.worker("crawl", worker_id="w7", timeout=30)
    task_id = bench.queue.enqueue("crawl")
    bench.clock.advance(42)
    assert bench.codes(task_id) == ["no_worker"]
    assert "w7 knew them and stopped answering 42 s ago" in bench.text(task_id)


def test_a_worker_that_stops_takes_nothing(bench: Bench) -> None:
    who = bench.worker("crawl", worker_id="w7", concurrency=2)
    bench.queue.database.run(lambda: workers.beat(who.instance, {"stopping": True}))
    task_id = bench.queue.enqueue("crawl")
    assert bench.codes(task_id) == ["no_worker"]
    assert "no worker takes tasks named 'crawl' any more: w7 ends" in bench.text(task_id)


def test_another_instance_of_the_same_worker_id_runs_nothing_of_a_silent_one(bench: Bench) -> None:
    silent = bench.worker("crawl", worker_id="w7", timeout=30)
    task_id = bench.queue.enqueue("crawl")
    bench.claim(silent)
    bench.clock.advance(42)
    bench.worker("crawl", worker_id="w7", timeout=30)
    assert bench.codes(task_id) == ["worker_silent"]
    assert "worker w7 stopped answering 42 s ago" in bench.text(task_id)


def test_a_task_that_is_not_due(bench: Bench) -> None:
    bench.worker("crawl")
    task_id = bench.queue.enqueue("crawl", delay_seconds=42)
    [reason] = bench.queue.explain(task_id).reasons
    assert (reason.code, reason.evidence["seconds"]) == ("delayed", 42)
    assert "due in 42 s" in reason.text


def test_a_task_that_waits_for_its_retry(bench: Bench) -> None:
    who = bench.worker("crawl")
    task_id = bench.queue.enqueue("crawl")
    [claimed] = bench.claim(who)
    ending = Ending.retry_later(claimed.id, claimed.version, delay=90, error="Traceback\nIOError: no route")
    bench.queue.database.run(lambda: attempts.end_attempts([ending]))
    [reason] = bench.queue.explain(task_id).reasons
    assert reason.code == "retry"
    assert "retry 1 of 2 at 2026-11-15T12:01:30+00:00, in 90 s" in reason.text


@pytest.mark.parametrize("name", [None, "crawl"])
def test_a_pause_with_who_when_and_why(bench: Bench, name: str | None) -> None:
    bench.worker("crawl")
    bench.queue.pause(name, by="ann", reason="maintenance")
    task_id = bench.queue.enqueue("crawl")
    [reason] = bench.queue.explain(task_id).reasons
    assert (reason.code, reason.evidence["by"], reason.evidence["name"]) == ("paused", "ann", name)
    assert "paused by ann since 2026-11-15T12:00:00+00:00: maintenance" in reason.text


def test_a_pause_of_other_tasks_is_no_reason(bench: Bench) -> None:
    bench.worker("crawl")
    bench.queue.pause("mail")
    assert bench.codes(bench.queue.enqueue("crawl")) == ["ready"]


def test_all_slots_taken_and_tasks_ahead(bench: Bench) -> None:
    who = bench.worker("crawl", "mail", concurrency=2)
    for _ in range(2):
        bench.queue.enqueue("crawl", priority=9)
    bench.claim(who, limit=2)
    for name, priority in [("crawl", 5), ("mail", 5), ("mail", 0), ("other", 9)]:
        bench.queue.enqueue(name, priority=priority)
    bench.clock.advance(1)
    task_id = bench.queue.enqueue("crawl")
    bench.queue.enqueue("crawl")

    busy, behind = bench.queue.explain(task_id).reasons
    assert (busy.code, busy.evidence["running"], busy.evidence["slots"]) == ("busy", 2, 2)
    assert "2/2, held by w1 (2)" in busy.text
    assert (behind.code, behind.evidence["ahead"]) == ("behind", 3)


def test_a_long_queue_is_counted_no_further_than_a_bound(bench: Bench) -> None:
    bench.worker("crawl")
    bench.queue.register_handler("crawl", lambda payload: None)
    new = [bench.queue.new_by_name("crawl", priority=1) for _ in range(MAX_AHEAD + 5)]
    bench.queue.submit_new(new)
    task_id = bench.queue.enqueue("crawl")
    [reason] = bench.queue.explain(task_id).reasons
    assert (reason.evidence["ahead"], reason.evidence["capped"]) == (MAX_AHEAD, True)
    assert "more than 10,000 tasks ahead" in reason.text


def test_a_rate_limit_that_is_used_up(bench: Bench) -> None:
    who = bench.worker("crawl", concurrency=9)
    bench.queue.set_rate_limit(0.5, "crawl")
    first, task_id = bench.queue.enqueue("crawl"), bench.queue.enqueue("crawl")
    assert [task.id for task in bench.claim(who)] == [str(first)]
    bench.clock.advance(0.5)
    [reason] = bench.queue.explain(task_id).reasons
    assert (reason.code, reason.evidence["seconds"]) == ("rate_limit", pytest.approx(1.5, abs=0.01))
    assert "rate limit of 0.5/s over tasks named 'crawl' is used up, next slot in 1.5 s" in reason.text


def test_a_concurrency_limit_that_is_used_up_names_its_holders(bench: Bench) -> None:
    who = bench.worker("crawl", concurrency=9)
    bench.queue.set_concurrency_limit(1)
    first, task_id = bench.queue.enqueue("crawl"), bench.queue.enqueue("crawl")
    bench.claim(who, limit=5)
    [reason] = bench.queue.explain(task_id).reasons
    assert (reason.code, reason.evidence["held_by"]) == ("concurrency_limit", [str(first)])
    assert f"concurrency 1/1 over everything, held by {first}" in reason.text


def test_a_full_key_names_its_holders_and_what_is_ahead_within_it(bench: Bench) -> None:
    who = bench.worker("crawl", concurrency=9)
    bench.queue.set_key_limit(2)
    ids = [bench.queue.enqueue("crawl", concurrency_key="ada") for _ in range(4)]
    bench.queue.enqueue("crawl", concurrency_key="bob", priority=9)
    assert bench.codes(ids[3]) == ["behind"]
    bench.claim(who, limit=9)
    full, behind = bench.queue.explain(ids[3]).reasons
    assert (full.code, full.evidence) == (
        "key_limit",
        {"key": "ada", "name": None, "limit": 2, "held_by": [str(task_id) for task_id in ids[:2]]},
    )
    assert f"concurrency 2/2 of key 'ada', held by {ids[0]}, {ids[1]}" in full.text
    assert (behind.code, behind.evidence["ahead"], behind.evidence["key"]) == ("behind", 1, "ada")
    assert bench.codes(ids[2]) == ["key_limit"]


def test_a_key_without_a_limit_is_no_reason(bench: Bench) -> None:
    who = bench.worker("crawl", concurrency=9)
    bench.queue.set_key_limit(0)
    bench.queue.enqueue("crawl", concurrency_key="ada")
    bench.claim(who)
    assert bench.codes(bench.queue.enqueue("crawl", concurrency_key="ada")) == ["ready"]


def test_nothing_in_its_way(bench: Bench) -> None:
    bench.worker("crawl")
    assert bench.codes(bench.queue.enqueue("crawl")) == ["ready"]


def test_several_reasons_come_in_the_order_in_which_they_bind(bench: Bench) -> None:
    bench.queue.pause()
    task_id = bench.queue.enqueue("crawl", delay_seconds=10)
    assert bench.codes(task_id) == ["delayed", "paused", "no_worker"]


def test_a_running_task(bench: Bench) -> None:
    who = bench.worker("crawl")
    task_id = bench.queue.enqueue("crawl")
    bench.claim(who)
    assert bench.codes(task_id) == ["running"]
    bench.queue.cancel(task_id)
    assert bench.codes(task_id) == ["cancelling", "running"]


def test_a_running_task_whose_worker_stopped_answering(bench: Bench) -> None:
    who = bench.worker("crawl", timeout=30)
    task_id = bench.queue.enqueue("crawl")
    bench.claim(who)
    bench.clock.advance(45)
    assert bench.codes(task_id) == ["worker_silent"]
    assert "worker w1 stopped answering 45 s ago, lease ends in 9 min" in bench.text(task_id)


def test_finished_tasks(bench: Bench) -> None:
    who = bench.worker("crawl")
    done, stopped = bench.queue.enqueue("crawl"), bench.queue.enqueue("crawl", delay_seconds=5)
    [claimed] = bench.claim(who)
    completion = Completion(claimed.id, claimed.version, '{"value":1}', 0, 0)
    bench.queue.database.run(lambda: attempts.complete_tasks([completion]))
    bench.queue.cancel(stopped)
    assert (bench.codes(done), bench.codes(stopped)) == (["completed"], ["cancelled"])


def test_tasks_that_failed_or_were_buried(bench: Bench) -> None:
    who = bench.worker("crawl", concurrency=2)
    failed, buried = (bench.queue.enqueue("crawl", max_attempts=1) for _ in range(2))
    for task in bench.claim(who, limit=2):
        if task.id == str(failed):
            ending = Ending.give_up(task.id, task.version, error="Traceback\nIOError: no route")
            bench.queue.database.run(lambda ending=ending: attempts.end_attempts([ending]))
    bench.clock.advance(31)
    bench.queue.recover_stale_tasks()
    for task_id, code, moment, told in [
        (
            failed,
            "failed",
            START,
            "it failed for good at 2026-11-15T12:00:00+00:00, in attempt 1 (IOError: no route)",
        ),
        (buried, "buried", bench.clock.now(), "it was buried at 2026-11-15T12:00:31+00:00: 1 worker was lost"),
    ]:
        [reason] = bench.queue.explain(task_id).reasons
        assert (reason.code, reason.evidence["completed_at"], reason.evidence["attempts"]) == (code, moment, 1)
        assert reason.text.startswith(told)
        assert reason.remedy == "retry it by hand"


def test_a_task_past_its_expiry_says_so_first(bench: Bench) -> None:
    bench.worker("crawl")
    task_id = bench.queue.enqueue("crawl", expires_at=START + timedelta(seconds=5))
    assert bench.codes(task_id) == ["ready"]
    bench.clock.advance(5)
    expired, _ = bench.queue.explain(task_id).reasons
    assert (expired.code, expired.evidence["expires_at"]) == ("expired", START + timedelta(seconds=5))


def test_tasks_of_a_paused_name_are_not_ahead(bench: Bench) -> None:
    bench.worker("crawl", "mail")
    for _ in range(3):
        bench.queue.enqueue("mail", priority=9)
    task_id = bench.queue.enqueue("crawl")
    assert bench.codes(task_id) == ["behind"]
    bench.queue.pause("mail")
    assert bench.codes(task_id) == ["ready"]


def test_a_task_that_does_not_exist(bench: Bench) -> None:
    with pytest.raises(TaskNotFound):
        bench.queue.explain(uuid4())


def test_evidence_is_of_one_moment(bench: Bench) -> None:
    bench.worker("crawl")
    task_id = bench.queue.enqueue("crawl", run_after=START + timedelta(minutes=5))
    [reason] = bench.queue.explain(task_id).reasons
    assert reason.evidence["seconds"] == 300
