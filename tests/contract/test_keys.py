"""Concurrency keys: so many of a key at once over all workers, keys take turns, and nothing that waits is forgotten."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tasklib import ConfigurationError, ManualClock, TaskQueue
from tasklib.core.lifecycle import Ending
from tasklib.storage.operations import attempts
from tasklib.storage.operations.claims import Claimed
from tasklib.storage.operations.limits.keys import TakenKeys, take_keys
from tasklib.storage.operations.limits.names import take_limits
from tasklib.storage.operations.workers import Registration
from tasklib.storage.statement import Operation
from tests.contract.test_limits import Bench


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    bench = Bench(database_url)
    yield bench
    bench.queue.close()


def submit(bench: Bench, key: str | None, count: int = 1, name: str = "mail", **options: Any) -> None:
    new = [bench.queue.new_by_name(name, concurrency_key=key, **options) for _ in range(count)]
    bench.queue.submit_new(new)


def keys(claimed: Claimed) -> list[str | None]:
    """The keys of the tasks of a claim, in their order."""
    return [task.task("w").concurrency_key for task in claimed.tasks]


def end(bench: Bench, claimed: Claimed, make: Any) -> None:
    endings = [make(task.id, task.version) for task in claimed.tasks]
    bench.database.run(lambda: attempts.end_attempts(endings))


def test_one_task_of_a_key_runs_at_once_and_the_next_when_it_ends(bench: Bench) -> None:
    submit(bench, "ada", 3)
    first, second = bench.worker(), bench.worker()
    claimed = bench.claim(first)
    assert keys(claimed) == ["ada"]
    assert keys(bench.claim(second)) == []
    bench.complete(claimed)
    assert keys(bench.claim(second)) == ["ada"]


def test_a_freed_slot_is_seen_whatever_the_clock_says(database_url: str) -> None:
    with TaskQueue(database_url, clock=ManualClock()) as queue:  # It stands still, behind that of the server.
        queue.register_handler("mail", lambda payload: None)
        for number in range(3):
            queue.enqueue("mail", number, concurrency_key="ada")
        assert queue.process_batch() == 3


def test_a_key_that_is_full_holds_up_nobody(bench: Bench) -> None:
    submit(bench, "ada", 50, priority=9)
    submit(bench, "bob", 2)
    submit(bench, None, 2)
    who = bench.worker()
    assert Counter(keys(bench.claim(who))) == {"ada": 1, "bob": 1, None: 2}
    assert keys(bench.claim(who)) == []


def test_the_limit_is_set_for_one_key_or_for_every_other(bench: Bench) -> None:
    bench.queue.set_key_limit(2)
    bench.queue.set_key_limit(3, key="ada")
    for key in ("ada", "bob"):
        submit(bench, key, 5)
    assert Counter(keys(bench.claim(bench.worker()))) == {"ada": 3, "bob": 2}
    assert [(limit.key, limit.max_running) for limit in bench.queue.key_limits()] == [(None, 2), ("ada", 3)]


def names_by_key(claimed: Claimed) -> Counter[tuple[str | None, str]]:
    return Counter((task.task("w").concurrency_key, task.name) for task in claimed.tasks)


def test_a_name_with_a_limit_of_its_own_is_counted_by_itself(bench: Bench) -> None:
    bench.queue.set_key_limit(3, name="mail")
    bench.queue.set_key_limit(2, key="ada", name="mail")
    for key in ("ada", "bob"):
        submit(bench, key, 6, name="mail")
        submit(bench, key, 3, name="crawl", priority=9)
    first, second = bench.worker(), bench.worker()
    held = bench.claim(first)
    assert names_by_key(held) == {("ada", "mail"): 2, ("bob", "mail"): 3, ("ada", "crawl"): 1, ("bob", "crawl"): 1}
    assert keys(bench.claim(second)) == []
    bench.complete(held)
    assert names_by_key(bench.claim(second)) == names_by_key(held)
    limits = [(limit.name, limit.key, limit.max_running) for limit in bench.queue.key_limits()]
    assert limits == [("mail", None, 3), ("mail", "ada", 2)]


def test_forgetting_the_limit_of_a_name_counts_it_with_the_others_again(bench: Bench) -> None:
    bench.queue.set_key_limit(2, name="mail")
    submit(bench, "ada", 3, name="mail")
    who = bench.worker()
    held = bench.claim(who)
    assert len(held.tasks) == 2
    bench.queue.set_key_limit(None, name="mail")
    submit(bench, "ada", 1, name="crawl", priority=9)
    assert keys(bench.claim(who)) == []
    bench.complete(held)
    assert names_by_key(bench.claim(who)) == {("ada", "crawl"): 1}


def test_a_full_name_leaves_the_turn_to_the_other_names_of_its_key(bench: Bench) -> None:
    bench.queue.set_key_limit(1, name="mail")
    submit(bench, "ada", 50, name="mail", priority=9)
    submit(bench, "ada", 2, name="crawl")
    who = bench.worker()
    assert [task.name for _ in range(3) for task in bench.claim(who, limit=1).tasks] == ["mail", "crawl"]


def test_a_key_with_many_names_gets_no_more_than_its_share(bench: Bench) -> None:
    bench.queue.set_key_limit(0)
    bench.queue.set_key_limit(0, name="mail")
    for name in ("mail", "crawl"):
        submit(bench, "ada", 10, name=name)
    submit(bench, "bob", 10)
    assert Counter(keys(bench.claim(bench.worker(), limit=4))) == {"ada": 2, "bob": 2}


def test_a_limit_that_is_raised_lets_more_start(bench: Bench) -> None:
    for key in ("ada", "bob"):
        submit(bench, key, 5)
    who = bench.worker()
    assert Counter(keys(bench.claim(who))) == {"ada": 1, "bob": 1}
    bench.queue.set_key_limit(2)
    assert Counter(keys(bench.claim(who))) == {"ada": 1, "bob": 1}
    bench.queue.set_key_limit(0, key="ada")
    assert keys(bench.claim(who)) == ["ada"] * 3


def test_a_limit_that_is_lowered_holds_as_tasks_end(bench: Bench) -> None:
    bench.queue.set_key_limit(3)
    submit(bench, "ada", 6)
    who = bench.worker()
    held = bench.claim(who)
    bench.queue.set_key_limit(None)
    assert keys(bench.claim(who)) == []
    bench.complete(held)
    assert keys(bench.claim(who)) == ["ada"]


def test_keys_take_turns_however_much_each_has(bench: Bench) -> None:
    bench.queue.set_key_limit(0)
    submit(bench, "ada", 30)
    submit(bench, "bob", 3)
    submit(bench, "eve", 3)
    who = bench.worker()
    served = [key for _ in range(9) for key in keys(bench.claim(who, limit=1))]
    assert Counter(served) == {"ada": 3, "bob": 3, "eve": 3}
    assert keys(bench.claim(who, limit=100)) == ["ada"] * 27


def test_a_backlog_that_came_bit_by_bit_keeps_nobody_from_a_turn(bench: Bench) -> None:
    bench.queue.set_key_limit(0)
    for _ in range(150):  # more hints of one key than a claim looks at
        submit(bench, "ada")
        bench.clock.advance(0.001)
    submit(bench, "bob", 2)
    who = bench.worker()
    served = [key for _ in range(5) for key in keys(bench.claim(who, limit=1))]
    assert served.count("bob") == 2


def test_a_task_can_take_its_key_from_a_tag(bench: Bench) -> None:
    @bench.queue.task(name="mail", concurrency_key="tenant {tenant}")
    def mail() -> None: ...

    bench.queue.set_key_limit(0)
    for tenant, count in (("ada", 30), ("bob", 3)):
        bench.queue.submit_new([bench.queue.new_by_name("mail", tags={"tenant": tenant}) for _ in range(count)])
    who = bench.worker()
    served = [key for _ in range(6) for key in keys(bench.claim(who, limit=1))]
    assert Counter(served) == {"tenant ada": 3, "tenant bob": 3}
    mail.options(tags={"tenant": "ada"}, concurrency_key="mine").submit()
    assert [task.concurrency_key for task in bench.queue.list(limit=1)] == ["mine"]


def test_keys_take_turns_across_names(bench: Bench) -> None:
    bench.queue.set_key_limit(0)
    submit(bench, "ada", 20, name="mail")
    submit(bench, "bob", 2, name="crawl")
    who = bench.worker()
    served = [key for _ in range(4) for key in keys(bench.claim(who, limit=1))]
    assert Counter(served) == {"ada": 2, "bob": 2}


def test_a_higher_priority_comes_before_turns(bench: Bench) -> None:
    bench.queue.set_key_limit(0)
    submit(bench, "ada", 3)
    submit(bench, "bob", 2, priority=5)
    submit(bench, None, 1, priority=3)
    who = bench.worker()
    assert [key for _ in range(4) for key in keys(bench.claim(who, limit=1))] == ["bob", "bob", None, "ada"]


def test_within_a_key_the_best_comes_first(bench: Bench) -> None:
    submit(bench, "ada", 2, name="crawl")
    submit(bench, "ada", 1, name="mail", priority=5)
    who = bench.worker()
    claimed = bench.claim(who)
    assert [task.name for task in claimed.tasks] == ["mail"]
    bench.complete(claimed)
    assert [task.name for task in bench.claim(who).tasks] == ["crawl"]


ENDS: dict[str, Any] = {
    "failure": lambda task_id, version: Ending.give_up(task_id, version, error="no"),
    "retry": lambda task_id, version: Ending.retry_later(task_id, version, delay=60, error="no"),
    "release": Ending.release,
}


@pytest.mark.parametrize("way", ENDS)
def test_every_end_of_an_attempt_frees_the_slot(bench: Bench, way: str) -> None:
    submit(bench, "ada", 2)
    who = bench.worker()
    end(bench, bench.claim(who), ENDS[way])
    assert keys(bench.claim(who)) == ["ada"]
    assert keys(bench.claim(who)) == []


def test_a_lost_worker_frees_its_slot_when_it_is_recovered(bench: Bench) -> None:
    submit(bench, "ada", 2)
    bench.claim(bench.worker())
    bench.clock.advance(31)
    who = bench.worker()
    assert keys(bench.claim(who)) == []
    bench.queue.recover_stale_tasks()
    assert keys(bench.claim(who)) == ["ada"]


def test_a_task_that_waits_for_its_key_is_not_forgotten_when_the_clock_is_set_back(bench: Bench) -> None:
    submit(bench, "ada", 2)
    who = bench.worker()
    held = bench.claim(who)
    assert keys(bench.claim(who)) == []
    bench.clock.advance(-60)
    bench.complete(held)
    assert keys(bench.claim(who)) == []
    bench.clock.advance(60)
    assert keys(bench.claim(who)) == ["ada"]


def test_a_delayed_task_and_a_retry_come_back_by_themselves(bench: Bench) -> None:
    submit(bench, "ada", 1)
    submit(bench, "bob", 1, delay_seconds=30)
    who = bench.worker()
    end(bench, bench.claim(who), ENDS["retry"])
    waiting = bench.claim(who)
    assert (keys(waiting), waiting.next_due_in) == ([], pytest.approx(30, abs=0.01))
    bench.clock.advance(30)
    assert keys(bench.claim(who)) == ["bob"]
    bench.clock.advance(30)
    assert keys(bench.claim(who)) == ["ada"]


def test_cancelled_and_expired_tasks_leave_the_key_to_the_next(bench: Bench) -> None:
    submit(bench, "ada", 1, expires_at=bench.clock.now())
    submit(bench, "ada", 1)
    submit(bench, "ada", 1)
    tasks = sorted(bench.queue.list(), key=lambda task: task.seq)
    bench.queue.cancel(tasks[1].id)
    who = bench.worker()
    claimed = [task.id for _ in range(2) for task in bench.claim(who).tasks]
    assert claimed == [str(tasks[2].id)]


def test_a_paused_name_keeps_neither_key_nor_turn(bench: Bench) -> None:
    submit(bench, "ada", 2, name="mail", priority=9)
    submit(bench, "ada", 1, name="crawl")
    bench.queue.pause("mail")
    who = bench.worker()
    held = bench.claim(who)
    assert [task.name for task in held.tasks] == ["crawl"]
    bench.queue.resume("mail")
    assert keys(bench.claim(who)) == []
    bench.complete(held)
    assert [task.name for task in bench.claim(who).tasks] == ["mail"]


def test_a_worker_passes_on_what_it_does_not_know(bench: Bench) -> None:
    submit(bench, "ada", 2, name="mail")
    both, other = bench.worker(), bench.worker()
    held = bench.claim(both)
    bench.complete(held)
    assert keys(bench.claim(other, names=("crawl",))) == []
    assert [task.name for task in bench.claim(both).tasks] == ["mail"]


def test_a_limited_name_does_not_take_the_turns_of_others(bench: Bench) -> None:
    bench.queue.set_rate_limit(1, "mail")
    bench.queue.set_concurrency_limit(1, "crawl")
    for number in range(40):
        submit(bench, f"key-{number}", 1, name="mail", priority=9)
        submit(bench, f"key-{number}", 1, name="crawl", priority=9)
    submit(bench, "zoe", 1, name="other")
    who = bench.worker()
    names = Counter(t.name for _ in range(3) for t in bench.claim(who, 2, ("mail", "crawl", "other")).tasks)
    assert names == {"mail": 1, "crawl": 1, "other": 1}


def test_replacing_a_task_may_move_it_to_another_key(bench: Bench) -> None:
    submit(bench, "ada", 1)
    submit(bench, "ada", 1, unique_key="u")
    who = bench.worker()
    assert keys(bench.claim(who)) == ["ada"]
    submit(bench, "bob", 1, unique_key="u", on_conflict="replace")
    assert keys(bench.claim(who)) == ["bob"]


def test_racing_workers_never_exceed_a_key_and_forget_nothing(bench: Bench) -> None:
    bench.queue.set_key_limit(2)
    allowed, total = {"a": 2, "b": 2, "c": 2}, 40
    running, lock, most = Counter[str](), threading.Lock(), Counter[str]()
    left = threading.Semaphore(0)

    def produce() -> None:
        for number in range(total):
            submit(bench, "abc"[number % 3], 1, name=("mail", "crawl")[number % 2], priority=number % 2)

    def work(who: Registration, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(400):
            claimed = bench.claim(who, limit=3)
            with lock:
                running.update(str(key) for key in keys(claimed))
                for key, count in running.items():
                    most[key] = max(most[key], count)
            for task in claimed.tasks:
                key = str(task.task("w").concurrency_key)
                with lock:
                    running[key] -= 1
                one = Claimed([task])
                if chance.random() < 0.2:
                    end(bench, one, Ending.release)
                else:
                    bench.complete(one)
                    left.release()
            if left._value >= total:
                return

    crew = [threading.Thread(target=work, args=(bench.worker(), seed)) for seed in range(4)]
    for thread in (*crew, threading.Thread(target=produce)):
        thread.start()
    for thread in crew:
        thread.join(60)
    assert bench.queue.count(state="completed") == total
    assert all(most[key] <= allowed[key] for key in allowed), most


@pytest.mark.parametrize("which", [{"key": ""}, {"name": ""}])
def test_an_empty_key_or_name_is_refused(bench: Bench, which: Any) -> None:
    with pytest.raises(ConfigurationError, match="non-empty"):
        bench.queue.set_key_limit(1, **which)


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_a_limit_that_is_none_is_refused_by_value(bench: Bench, count: Any) -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        bench.queue.set_key_limit(count)


def test_a_worker_stopped_in_the_middle_of_its_turn_keeps_nothing(postgres_url: str) -> None:
    bench = Bench(postgres_url)
    submit(bench, "ada", 1)

    def turn() -> Operation[TakenKeys]:
        yield from take_limits(["mail"])
        return (yield from take_keys(["mail"], {}, 1))

    with bench.database.transaction() as stopped:
        assert stopped.run(turn).keys == ("ada",)
        shown = stopped.connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        assert shown == ("10s",)
        assert keys(bench.claim(bench.worker())) == []
    assert keys(bench.claim(bench.worker())) == ["ada"]
    bench.queue.close()
