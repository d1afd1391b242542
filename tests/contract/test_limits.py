"""Limits that hold across all workers: how many tasks start in a second, and how many run at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from tasklib import ConfigurationError, ManualClock, TaskQueue
from tasklib.core.outcome import Completion
from tasklib.storage.operations import attempts, claims, workers
from tasklib.storage.operations.claims import Claimed
from tasklib.storage.operations.workers import Registration
from tests.fixtures.backends import libpq_url

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


class Bench:
    """A queue whose clock stands still, and workers that only claim."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(START)
        self.queue = TaskQueue(url, clock=self.clock)
        self.database = self.queue.database

    def worker(self) -> Registration:
        who = Registration(uuid4(), "w", "host", 1, 30, 100, ("mail", "crawl"))
        self.database.run(lambda: workers.register_worker(who))
        return who

    def claim(self, who: Registration, limit: int = 100, names: tuple[str, ...] = ("mail", "crawl")) -> Claimed:
        held = self.database.run(lambda: workers.list_held(who.instance))
        tasks = {str(task.id): task for task in self.queue.list(state="running", limit=1000)}
        return self.database.run(
            lambda: claims.claim_tasks(
                claims.Claim(
                    instance=who.instance,
                    worker_id=who.worker_id,
                    names=names,
                    limit=limit,
                    lease_seconds=600,
                    held=[(tasks[task_id].seq, version) for task_id, version in held],
                )
            )
        )

    def counts(self, who: Registration, limit: int = 100) -> dict[str, int]:
        return dict(Counter(task.name for task in self.claim(who, limit).tasks))

    def complete(self, claimed: Claimed) -> None:
        done = [Completion(task.id, task.version, '{"value":null}', 0, 0) for task in claimed.tasks]
        self.database.run(lambda: attempts.complete_tasks(done))

    def fill(self, **names: int) -> None:
        for name, count in names.items():
            self.queue.submit_new([self.queue.new_by_name(name) for _ in range(count)])


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    bench = Bench(database_url)
    yield bench
    bench.queue.close()


def test_a_rate_allows_one_seconds_worth_and_then_refills(bench: Bench) -> None:
    bench.queue.set_rate_limit(10, "mail")
    bench.fill(mail=40)
    who = bench.worker()
    assert bench.counts(who) == {"mail": 10}
    assert bench.counts(who) == {}
    bench.clock.advance(0.5)
    assert bench.counts(who) == {"mail": 5}
    bench.clock.advance(60)
    assert bench.counts(who) == {"mail": 10}


def test_a_rate_goes_on_after_the_clock_was_set_back(bench: Bench) -> None:
    bench.queue.set_rate_limit(10, "mail")
    bench.fill(mail=30)
    who = bench.worker()
    assert bench.counts(who) == {"mail": 10}
    bench.clock.advance(-3600)
    bench.queue.enqueue("mail", run_at=bench.clock.now())
    assert bench.counts(who) == {"mail": 1}


def test_a_rate_holds_over_all_workers_together(bench: Bench) -> None:
    bench.queue.set_rate_limit(10, "mail")
    bench.fill(mail=40)
    first, second = bench.worker(), bench.worker()
    assert bench.counts(first, limit=6) == {"mail": 6}
    assert bench.counts(second) == {"mail": 4}
    assert bench.counts(first) == {}


def test_a_limited_name_does_not_hold_up_others_behind_it(bench: Bench) -> None:
    bench.queue.set_rate_limit(1, "mail")
    bench.queue.submit_new([bench.queue.new_by_name("mail", priority=9) for _ in range(50)])
    bench.fill(crawl=20)
    assert bench.counts(bench.worker(), limit=10) == {"mail": 1, "crawl": 9}


def test_names_without_a_limit_never_wait_for_the_row_of_one_that_has(postgres_url: str) -> None:
    bench = Bench(postgres_url)
    bench.queue.set_rate_limit(100, "mail")
    bench.queue.set_concurrency_limit(100, "mail")
    bench.fill(mail=5, crawl=5)
    first, second = bench.worker(), bench.worker()
    with psycopg.connect(libpq_url(postgres_url)) as busy:
        busy.execute("SELECT name FROM tasklib_controls WHERE name = 'mail' FOR UPDATE")
        assert bench.counts(first) == {"crawl": 5}
    assert bench.counts(second) == {"mail": 5}
    bench.queue.close()


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 9e-7])
def test_a_rate_nobody_could_wait_for_is_refused(bench: Bench, rate: float) -> None:
    """PostgreSQL cannot reckon with the smallest numbers: such a limit would stop every worker, and its own removal."""
    with pytest.raises(ConfigurationError, match="to let none start, pause"):
        bench.queue.set_rate_limit(rate)
    bench.fill(mail=1)
    assert bench.counts(bench.worker()) == {"mail": 1}


def test_a_rate_below_one(bench: Bench) -> None:
    bench.queue.set_rate_limit(0.5, "mail")
    bench.fill(mail=5)
    who = bench.worker()
    assert bench.counts(who) == {"mail": 1}
    bench.clock.advance(1.9)
    assert bench.counts(who) == {}
    bench.clock.advance(0.1)
    assert bench.counts(who) == {"mail": 1}


def test_a_claim_says_when_the_rate_allows_the_next(bench: Bench) -> None:
    bench.queue.set_rate_limit(0.5, "mail")
    bench.fill(mail=5)
    who = bench.worker()
    bench.claim(who)
    bench.clock.advance(0.5)
    claimed = bench.claim(who)
    assert (claimed.tasks, claimed.limited) == ([], True)
    assert claimed.next_due_in == pytest.approx(1.5, abs=0.01)


def test_a_rate_over_everything(bench: Bench) -> None:
    bench.queue.set_rate_limit(5)
    bench.fill(mail=10, crawl=10)
    who = bench.worker()
    assert sum(bench.counts(who).values()) == 5
    bench.clock.advance(0.4)
    assert sum(bench.counts(who).values()) == 2


def test_the_tighter_of_two_rates_holds(bench: Bench) -> None:
    bench.queue.set_rate_limit(8)
    bench.queue.set_rate_limit(3, "mail")
    bench.fill(mail=10, crawl=10)
    assert bench.counts(bench.worker()) == {"mail": 3, "crawl": 5}


def test_a_rate_can_be_read_changed_and_lifted(bench: Bench) -> None:
    assert bench.queue.get_rate_limit("mail") == 0
    bench.queue.set_rate_limit(10, "mail")
    bench.queue.set_rate_limit(2, "mail")
    assert (bench.queue.get_rate_limit("mail"), bench.queue.get_rate_limit()) == (2, 0)
    bench.fill(mail=30)
    who = bench.worker()
    assert bench.counts(who) == {"mail": 2}
    bench.queue.set_rate_limit(0, "mail")
    assert bench.queue.get_rate_limit("mail") == 0
    assert bench.counts(who) == {"mail": 28}


def test_changing_a_rate_does_not_refill_it(bench: Bench) -> None:
    bench.queue.set_rate_limit(10, "mail")
    bench.fill(mail=30)
    who = bench.worker()
    assert bench.counts(who) == {"mail": 10}
    bench.queue.set_rate_limit(20, "mail")
    assert bench.counts(who) == {}


def test_as_many_run_at_once_as_allowed_over_all_workers(bench: Bench) -> None:
    bench.queue.set_concurrency_limit(3, "mail")
    bench.fill(mail=10, crawl=2)
    first, second = bench.worker(), bench.worker()
    held = bench.claim(first, limit=2)
    assert bench.counts(second) == {"mail": 1, "crawl": 2}
    assert bench.counts(first) == {}
    bench.complete(held)
    assert bench.counts(second) == {"mail": 2}


def test_what_a_dead_worker_holds_counts_until_it_is_recovered(bench: Bench) -> None:
    bench.queue.set_concurrency_limit(2, "mail")
    bench.fill(mail=5)
    bench.claim(bench.worker())
    bench.clock.advance(31)
    who = bench.worker()
    assert bench.counts(who) == {}
    assert bench.queue.recover_stale_tasks() == 2
    assert bench.counts(who) == {"mail": 2}


def test_a_limit_on_everything_that_runs(bench: Bench) -> None:
    bench.queue.set_concurrency_limit(3)
    bench.fill(mail=5, crawl=5)
    who = bench.worker()
    assert sum(bench.counts(who).values()) == 3
    assert bench.counts(who) == {}
    bench.queue.set_concurrency_limit(0)
    assert sum(bench.counts(who).values()) == 7


def test_racing_workers_never_exceed_a_limit(bench: Bench) -> None:
    bench.queue.set_concurrency_limit(7, "mail")
    bench.queue.set_rate_limit(9, "crawl")
    bench.fill(mail=60, crawl=60)
    crew = [bench.worker() for _ in range(8)]
    barrier, claimed = threading.Barrier(8), Counter[str]()
    lock = threading.Lock()

    def race(who: Registration) -> None:
        barrier.wait()
        for _ in range(6):
            names = [task.name for task in bench.claim(who, limit=4).tasks]
            with lock:
                claimed.update(names)

    threads = [threading.Thread(target=race, args=(who,)) for who in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for who in crew:
        claimed.update(task.name for task in bench.claim(who).tasks)
    assert claimed == {"mail": 7, "crawl": 9}


def test_limits_are_listed(bench: Bench) -> None:
    bench.queue.set_rate_limit(5)
    bench.queue.set_concurrency_limit(2, "mail")
    assert [(limit.name, limit.rate, limit.max_running) for limit in bench.queue.limits()] == [
        (None, 5, None),
        ("mail", None, 2),
    ]


@pytest.mark.parametrize("rate", [-1, float("nan"), "10", True])
def test_a_rate_that_is_none_is_refused_by_value(bench: Bench, rate: object) -> None:
    with pytest.raises(ConfigurationError, match="tasks per second"):
        bench.queue.set_rate_limit(rate)  # type: ignore[arg-type]
    assert bench.queue.get_rate_limit() == 0
