"""Counts that are exact without reading what is finished, and what was done, by minute and by hour."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

from tasklib import Task
from tasklib.core.insights.histogram import bucket_of
from tasklib.core.lifecycle import Phase
from tasklib.storage.operations import statistics
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.statistics import Done, Work
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import Face

MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.fixture(autouse=True)
def count_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of any size is counted as a large one is."""
    monkeypatch.setattr(lists, "FEW_ROWS", -1)


def fold(queue: Face, times: int = 4) -> None:
    """Count on; on PostgreSQL it takes some turns until all who could add rows before a position have ended."""
    for _ in range(times):
        queue.advance(5)
        queue.do(lambda: statistics.keep_statistics())


def really(queue: Face) -> Counter[tuple[str, str]]:
    rows = queue.sql("SELECT name, state, count(*) AS count FROM tasks GROUP BY name, state")
    return Counter({(row["name"], row["state"]): row["count"] for row in rows})


def counted(queue: Face) -> Counter[tuple[str, str]]:
    states = {"pending", "running", "completed", "failed", "cancelled", "buried"}
    by_name = queue.stats().by_name
    return Counter(
        {(name, key): count for name, counts in by_name.items() for key, count in counts.items() if key in states}
    )


def one_of_each(queue: Face) -> None:
    for phase in (Phase.BURIED, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.RETRYING, Phase.RUNNING):
        queue.task_in(phase)
    queue.enqueue("other", delay_seconds=3600)
    queue.enqueue("other")


def test_tasks_with_a_concurrency_key_are_counted_too(queue: Face) -> None:
    queue.enqueue("other", concurrency_key="k")
    queue.enqueue("other", concurrency_key="k", delay_seconds=3600)
    assert counted(queue) == really(queue)
    assert queue.stats().delayed == 1


def test_counts_are_exact_before_during_and_after_the_totals_are_kept(queue: Face) -> None:
    one_of_each(queue)
    assert counted(queue) == really(queue)
    fold(queue, times=1)
    assert counted(queue) == really(queue)
    fold(queue)
    one_of_each(queue)
    assert counted(queue) == really(queue)
    stats = queue.stats()
    assert (stats.delayed, stats.retrying, stats.total) == (2, 2, 16)


def test_counts_know_what_was_deleted_in_any_way(queue: Face) -> None:
    one_of_each(queue)
    fold(queue)
    one_of_each(queue)
    queue.sql("DELETE FROM tasks WHERE state IN ('completed', 'cancelled')")
    assert counted(queue) == really(queue)
    fold(queue)
    assert counted(queue) == really(queue)
    queue.sql("DELETE FROM tasks")
    assert counted(queue) == Counter()


@pytest.mark.backends("postgres")
def test_a_row_that_appears_behind_the_position_is_counted(queue: Face) -> None:
    queue.stats()  # the tables are there
    with psycopg.connect(libpq_url(queue.url)) as late:
        late.execute("INSERT INTO tasks (name) VALUES ('late')")
        queue.enqueue("job")
        fold(queue, times=6)
        assert counted(queue) == really(queue)
    assert counted(queue) == really(queue) == {("job", "pending"): 1, ("late", "pending"): 1}
    fold(queue)
    assert counted(queue) == really(queue)


@pytest.mark.parametrize("states", [["failed"], ["retrying"], ["running"], ["cancelled", "buried"], ["completed"]])
def test_lists_by_state_are_the_same_however_they_are_found(queue: Face, states: list[str]) -> None:
    one_of_each(queue)
    one_of_each(queue)
    found = queue.list(state=states)
    whole = [task for task in queue.list() if matches(task, states)]
    assert [task.id for task in found] == [task.id for task in whole]
    assert queue.list(state=states, limit=1, before=found[0]) == found[1:2]
    assert queue.list(state=states, offset=1, limit=5) == found[1:6]
    assert queue.list(state=states, name="unknown") == []


def matches(task: Task, states: list[str]) -> bool:
    retrying = task.state == "failed" and task.next_retry_at is not None
    return str(task.state) in states or (retrying and "retrying" in states)


def test_what_was_done_is_added_up_by_minute_and_name(queue: Face) -> None:
    add(queue, "a", 2, run=0.01)
    add(queue, "a", 1, run=10.0)
    add(queue, "b", 5, run=1.0)
    queue.advance(MINUTE)
    add(queue, "a", 1, run=1.0)

    first, second = read(queue)
    assert (first.outcomes, second.outcomes) == ({"completed": 8}, {"completed": 1})
    assert second.at - first.at == MINUTE
    assert first.run.p50 == pytest.approx(1.0, rel=0.1)
    assert first.run.p99 == pytest.approx(10.0, rel=0.1)
    assert first.wait.p50 is None
    assert [each.outcomes for each in read(queue, name="b")] == [{"completed": 5}]


def test_merging_by_minute_and_by_hour_changes_no_sum(queue: Face) -> None:
    for _ in range(3):
        add(queue, "a", 2, run=0.5)
        add(queue, "a", 1, run=2.0, outcome="failed")
        queue.advance(MINUTE)
    before = read(queue, step=HOUR)
    tidy(queue)
    assert rows(queue) == 6
    assert read(queue, step=HOUR) == before
    queue.advance(DAY + HOUR)
    tidy(queue)
    assert rows(queue) == 4  # the hour's first minute beside the rest of it
    assert read(queue, step=HOUR) == before
    queue.advance(31 * DAY)
    tidy(queue)
    assert rows(queue) == 0


def test_the_depth_of_the_queue_is_noted_once_a_minute(queue: Face) -> None:
    one_of_each(queue)
    tidy(queue)
    queue.enqueue("other")
    tidy(queue)
    queue.advance(MINUTE)
    tidy(queue)

    now = int(queue.now.timestamp())
    found = queue.do(lambda: statistics.read_depths(since=now - HOUR, until=now + HOUR, step=MINUTE))
    assert [(each.due, each.delayed, each.retrying, each.running) for each in found] == [(1, 1, 1, 1), (2, 1, 1, 1)]


def add(queue: Face, name: str, count: int, *, run: float, outcome: str = "completed") -> None:
    done = Done(name, outcome, count, {}, {bucket_of(run): count})
    queue.do(lambda: statistics.add_metrics([done]))


def read(queue: Face, *, step: int = MINUTE, name: str | None = None) -> list[Work]:
    until = int(queue.now.timestamp()) + HOUR
    return queue.do(lambda: statistics.read_work(since=until - 10 * DAY, until=until, step=step, name=name))


def tidy(queue: Face) -> None:
    """Keep the books as if it had been long ago."""
    queue.sql("UPDATE tasklib_stats_position SET merged_at = NULL, counted_at = NULL")
    queue.do(lambda: statistics.keep_statistics())


def rows(queue: Face) -> int:
    count: int = queue.sql("SELECT count(*) AS count FROM tasklib_stats_outcomes")[0]["count"]
    return count
