"""The fluent face: types set up and fed in chains, with a worker in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasklib import Config, ConfigurationError, InvalidArguments, NotInitialized, TaskDefinitionError, TaskQueue
from tasklib.fluent import Fluent
from tests.fixtures.waiting import PATIENCE, eventually

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


@dataclass
class CrawlPayload:
    url: str
    depth: int = 1


@pytest.fixture
def tq(database_url: str) -> Iterator[Fluent]:
    face = Fluent()
    face.init(database_url, poll_interval=0.2)
    yield face
    face._stop()


def completed(tq: Fluent, count: int) -> None:
    eventually(lambda: tq.stats().completed == count)


def test_added_tasks_are_run_in_the_background(tq: Fluent) -> None:
    seen: list[Any] = []
    tq("crawl").set_worker(seen.append).add({"url": "1"}).add({"url": "2"}).add({"url": "3"})

    completed(tq, 3)
    assert [payload["url"] for payload in seen] == ["1", "2", "3"]


def test_a_typed_payload_arrives_as_its_type(tq: Fluent) -> None:
    seen: list[CrawlPayload] = []
    tq("crawl", payload=CrawlPayload).set_worker(seen.append).add(CrawlPayload("https://example.com", depth=2))

    completed(tq, 1)
    assert seen == [CrawlPayload("https://example.com", depth=2)]


def test_none_arrives_as_none(tq: Fluent) -> None:
    seen: list[Any] = []
    tq("crawl").set_worker(seen.append).add(None).add({})

    completed(tq, 2)
    assert seen == [None, {}]
    assert sorted(str(task.payload) for task in tq.queue.list()) == ["None", "{}"]


def test_explain_knows_what_the_worker_allows_itself(database_url: str) -> None:
    """Told with the heartbeat: a count, a rate, and the most that a task declares for each worker."""
    may_end, started = threading.Event(), threading.Semaphore(0)
    queue = TaskQueue(Config(database_url=database_url, heartbeat_interval_seconds=0.1))

    def hold(payload: Any = None) -> None:
        started.release()
        may_end.wait(180)

    declared = queue.task(max_concurrency=1, name="declared")(hold)
    tq = Fluent()
    tq.init(queue, poll_interval=0.2)
    try:
        tq("counted").set_worker_count(1).set_worker(hold).add(1)
        tq("rated").set_worker_count(9).set_rate_limit(0.001).set_worker(hold).add(1)
        declared.submit()
        assert all(started.acquire(timeout=180) for _ in range(3))
        waiting = {"counted": "worker_limit", "rated": "worker_rate_limit", "declared": "worker_limit"}
        ids = {name: queue.enqueue(name) for name in waiting}

        def found() -> dict[str, str]:
            return {name: queue.explain(task_id).reasons[0].code for name, task_id in ids.items()}

        eventually(lambda: found() == waiting)
        evidence = queue.explain(ids["counted"]).reasons[0].evidence
        assert (evidence["limit"], evidence["running"]) == (1, 1)
        assert queue.workers()[0].limits["rated"]["rate"] == 0.001
    finally:
        may_end.set()
        tq._stop()


def test_a_payload_that_does_not_fit_is_refused_where_it_is_added(tq: Fluent) -> None:
    crawl = tq("crawl", payload=CrawlPayload)
    with pytest.raises(InvalidArguments, match="url"):
        crawl.add({"wrong": "field"})  # type: ignore[arg-type]
    assert tq.stats().total == 0


def test_one_task_of_a_type_runs_at_once_unless_told_otherwise(tq: Fluent) -> None:
    running, most, lock = [0], [0], threading.Lock()
    go_on = threading.Event()

    def work(_: object) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        go_on.wait(PATIENCE)
        with lock:
            running[0] -= 1

    tq("slow").set_worker(work)
    for _ in range(3):
        tq("slow").add({})
    eventually(lambda: running[0] == 1)
    go_on.set()
    completed(tq, 3)
    assert most[0] == 1


def test_a_worker_count_lets_as_many_run_at_once(tq: Fluent) -> None:
    meeting = threading.Barrier(3)
    tq("meet").set_worker_count(3).set_worker(lambda _: meeting.wait(PATIENCE))
    for _ in range(3):
        tq("meet").add({})
    completed(tq, 3)


def test_a_rate_limit_starts_one_seconds_worth_and_then_one_by_one(tq: Fluent) -> None:
    tq("mail").set_rate_limit(4).set_worker_count(10)
    for _ in range(8):
        tq("mail").add({})
    tq("mail").set_worker(lambda _: None)

    completed(tq, 8)
    starts = sorted(task.started_at.timestamp() for task in tq.queue.list(name="mail") if task.started_at)
    assert starts[7] - starts[0] >= 0.9


def test_a_timeout_ends_an_attempt(tq: Fluent) -> None:
    may_end = threading.Event()
    tq("stuck").set_worker(lambda _: may_end.wait(180)).set_timeout(0.2).add({}, max_attempts=1)

    eventually(lambda: tq.stats().failed == 1)
    may_end.set()
    [task] = tq.queue.list(name="stuck")
    assert "TaskTimeout" in (task.error or "")


def test_options_of_one_task(tq: Fluent) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    tq("mail").add({"to": "vip@example.com"}, max_attempts=10, run_after=later, priority=3)

    [task] = tq.queue.list(name="mail")
    assert (task.max_attempts, task.priority, task.scheduled_at) == (10, 3, later)


def test_three_attempts_are_the_default(tq: Fluent) -> None:
    tq("mail").add({})
    [task] = tq.queue.list()
    assert task.max_attempts == 3


def test_pause_and_resume(tq: Fluent) -> None:
    seen: list[Any] = []
    tq.pause()
    assert tq.is_paused()
    tq("mail").set_worker(seen.append).add({"n": 1})
    tq.resume()
    completed(tq, 1)
    assert not tq.is_paused()


async def test_stop_lets_running_tasks_finish(tq: Fluent) -> None:
    started, finished = threading.Event(), threading.Event()

    def work(_: object) -> None:
        started.set()
        finished.wait(PATIENCE)

    tq("mail").set_worker(work).add({})
    assert started.wait(PATIENCE)
    finished.set()
    await tq.stop()
    assert not tq.is_running()
    assert tq.stats().completed == 1


def test_without_a_worker_tasks_are_only_added(database_url: str) -> None:
    face = Fluent()
    face.init(database_url, enable_worker=False)
    face("mail").set_worker(lambda _: None).add({})
    assert not face.is_running()
    assert face.stats().pending == 1
    face._stop()


def test_use_before_init_says_what_to_do() -> None:
    with pytest.raises(NotInitialized, match=r"tq\.init"):
        Fluent()("mail")


def test_a_second_init_while_working_is_refused(tq: Fluent, database_url: str) -> None:
    tq("mail").set_worker(lambda _: None)
    with pytest.raises(ConfigurationError, match=r"tq\.stop"):
        tq.init(database_url)


@pytest.mark.parametrize("wrong", [{"poll_interval": -1}, {"poll_interval": "soon"}, {"batch_size": 0}])
def test_settings_that_cannot_be_are_refused_at_once(database_url: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Fluent().init(database_url, **wrong)


def test_a_name_or_a_handler_that_cannot_be_changes_nothing(tq: Fluent) -> None:
    wrong: Any = None
    seen: list[Any] = []
    tq("crawl").set_worker(seen.append)
    with pytest.raises(TaskDefinitionError, match="cannot be called"):
        tq("crawl").set_worker(wrong)
    for name in (wrong, "", 5):
        with pytest.raises(ConfigurationError, match="a task's name"):
            tq(name)
    tq("crawl").add(1)

    completed(tq, 1)
    assert seen == [1]


def test_the_spelling_of_the_specification_is_answered_with_pythons(tq: Fluent) -> None:
    foreign: Any = tq("crawl")
    with pytest.raises(AttributeError, match="has no 'setWorkerCount'; write set_worker_count"):
        foreign.setWorkerCount(3)
    assert not hasattr(foreign, "colour")
