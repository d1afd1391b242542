"""Lists walk back through the order of insertion, a bounded way at a time, and lose and repeat nothing on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tasklib.core.queue_info import TaskFilter
from tasklib.storage.operations import statistics
from tasklib.storage.operations.reading import block_index, scan
from tasklib.storage.operations.reading.block_index import Gap
from tasklib.storage.operations.reading.lists import NEVER, list_tasks
from tasklib.storage.operations.reading.scan import Bounds, Start, Walk, walk_tasks
from tasklib.storage.statement import Operation, Statement
from tests.fixtures.queues import Face, open_queue
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")
COMPLETED = TaskFilter(states=("completed",))
PENDING = TaskFilter(states=("pending",))
SHORT = Bounds(7, reach=7, farthest=7, passing=7)
SURVEY = Bounds(11, reach=1000, farthest=1000, passing=1000)


@pytest.fixture
def queue(database_url: str) -> Iterator[Face]:
    """Sixty tasks: ten of `done` that have been completed, forty that wait, and ten more that were completed."""
    with open_queue(database_url) as queue:
        queue.plain.register_handler("done", lambda payload: payload)
        for name, number in (("done", 10), ("wait", 40), ("done", 10)):
            queue.plain.submit_new([queue.plain.new_by_name(name, {"n": n}) for n in range(number)])
            if name == "done":
                queue.plain.process_batch(10)
        yield queue


def walk(queue: Face, which: TaskFilter, **options: Any) -> tuple[Walk, int]:
    """What was found, and how many positions were looked at for it."""
    looked = 0

    def watched() -> Operation[Walk]:
        nonlocal looked
        inner = walk_tasks(which, **options)
        statement: Statement = next(inner)
        try:
            while True:
                if statement.name == "walk_tasks":
                    looked += statement.params["before"] - statement.params["floor"]
                statement = inner.send((yield statement))
        except StopIteration as end:
            found: Walk = end.value
            return found

    return queue.do(watched), looked


def positions(queue: Face, which: TaskFilter) -> list[int]:
    return [task.seq for task in queue.plain.list(state=which.states or None, name=which.name, limit=1000)]


@pytest.mark.parametrize("which", [TaskFilter(), COMPLETED, PENDING, TaskFilter(name="wait")], ids=str)
@pytest.mark.parametrize("judged", [False, True])
def test_pages_hold_every_match_once_and_in_order(queue: Face, which: TaskFilter, judged: bool) -> None:
    found, start = [], Start()
    for _ in range(100):
        keep = (lambda task: True) if judged else None
        page, looked = walk(queue, which, limit=4, start=start, bounds=Bounds(7, 7, 20, 7), keep=keep)
        assert looked <= 7 + 28
        found += [task.seq for task in page.tasks]
        below = page.tasks[-1].seq if len(page.tasks) == 4 else page.stopped
        if below is None:
            break
        start = Start(below, page.to_skip)
    assert found == positions(queue, which)


@pytest.mark.parametrize("offset", [0, 3, 12, 19, 20])
def test_an_offset_is_carried_on_from_page_to_page(queue: Face, offset: int) -> None:
    page, _ = walk(queue, COMPLETED, limit=5, start=Start(offset=offset), bounds=SHORT)
    while not page.tasks and page.stopped is not None:
        page, _ = walk(queue, COMPLETED, limit=5, start=Start(page.stopped, page.to_skip), bounds=SHORT)
    assert [task.seq for task in page.tasks] == positions(queue, COMPLETED)[offset : offset + 5][: len(page.tasks)]
    assert bool(page.tasks) is (offset < 20)


def test_a_stretch_without_a_match_is_found_once_and_left_out_afterwards(queue: Face) -> None:
    first, looked = walk(queue, COMPLETED, limit=15, bounds=SURVEY)
    newest = positions(queue, TaskFilter())[0]
    assert first.gap == Gap(top=newest - 9, bottom=newest - 50)
    again, looked_again = walk(queue, COMPLETED, limit=15, bounds=SURVEY, start=Start(gap=first.gap))
    assert [task.seq for task in again.tasks] == positions(queue, COMPLETED)[:15]
    assert looked_again <= 30 < looked


def test_what_is_newer_than_a_known_stretch_is_seen(queue: Face) -> None:
    known, _ = walk(queue, COMPLETED, limit=15, bounds=SURVEY)
    queue.plain.enqueue("done", {})
    queue.plain.process_batch()
    page, _ = walk(queue, COMPLETED, limit=1, bounds=SURVEY, start=Start(gap=known.gap))
    assert [task.seq for task in page.tasks] == positions(queue, COMPLETED)[:1]


def test_what_waits_is_found_by_its_index_however_old_it_is(queue: Face) -> None:
    for _ in range(60):
        queue.plain.enqueue("done", {})
    while queue.plain.process_batch(50):
        pass
    page, looked = walk(queue, PENDING, limit=3, bounds=Bounds(5, 5, 500, 5))
    assert [task.seq for task in page.tasks] == positions(queue, PENDING)[:3]
    assert looked <= 5 + 20


@pytest.fixture
def books(queue: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour later thirty more tasks; the books know of every stretch of ten positions."""
    monkeypatch.setattr(block_index, "BLOCK_SIZE", 10)
    monkeypatch.setattr(statistics, "BLOCK_SIZE", 10)
    queue.advance(3600)
    queue.plain.submit_new([queue.plain.new_by_name("late", {}) for _ in range(30)])
    fold(queue)


def fold(queue: Face) -> None:
    """Let the books catch up, and what follows be done once more; they wait for transactions of tests beside this."""

    def has_caught_up() -> bool:
        queue.advance(5)
        queue.do(lambda: statistics.keep_statistics())
        (row,) = queue.sql("SELECT seq, (SELECT max(seq) FROM tasks) AS newest FROM tasklib_stats_position")
        return bool(row["seq"] == row["newest"])

    eventually(has_caught_up)
    has_caught_up()


@pytest.mark.usefixtures("books")
def test_what_cannot_hold_a_match_by_name_or_time_is_left_out(queue: Face) -> None:
    hour_ago = queue.plain.list(limit=1)[0].created_at - timedelta(minutes=30)
    for which, most in (
        (TaskFilter(name="done"), 40),
        (TaskFilter(name="none"), 0),
        (TaskFilter(created_before=hour_ago), 70),
        (TaskFilter(created_after=hour_ago), 40),
        (TaskFilter(name="wait", created_after=hour_ago), 0),
        (TaskFilter(states=("completed",), created_before=hour_ago, name="done"), 40),
    ):
        page, looked = walk(queue, which, limit=100, bounds=SURVEY)
        assert page.tasks == queue.do(lambda which=which: list_tasks(which, limit=100))
        assert (looked, page.stopped) <= (most, None), which


def test_a_block_of_more_names_than_are_listed_stays_one_that_may_hold_any(
    queue: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "MOST_NAMES", 2)
    for turn in range(3):
        queue.plain.submit_new([queue.plain.new_by_name(f"kind.{n}", {}) for n in range(2 + turn)])
        fold(queue)
        for name, number in (("done", 20), ("wait", 40), ("kind.1", 1 + turn)):
            page, _ = walk(queue, TaskFilter(name=name), limit=100, bounds=SURVEY)
            assert len(page.tasks) == number, (turn, name)


@pytest.mark.usefixtures("books")
def test_tasks_that_are_renamed_by_hand_are_found_and_counted_by_their_new_name(queue: Face) -> None:
    queue.sql("UPDATE tasks SET name = 'done' WHERE name = 'wait'")
    for _ in range(2):
        page, _ = walk(queue, TaskFilter(name="done"), limit=100, bounds=SURVEY)
        assert len(page.tasks) == 60
        fold(queue)
    totals = {row["name"]: row["count"] for row in queue.sql("SELECT name, count FROM tasklib_stats_totals")}
    assert totals == {"done": 60, "late": 30}


@pytest.mark.usefixtures("books")
def test_the_books_forget_blocks_below_the_oldest_task(queue: Face) -> None:
    queue.sql("DELETE FROM tasks WHERE name IN ('done', 'wait')")
    queue.advance(60)
    fold(queue)
    assert {row["number"] for row in queue.sql("SELECT number FROM tasklib_stats_blocks")} <= {6, 7, 8}


@pytest.mark.parametrize("judged", [False, True])
def test_failures_are_looked_through_some_at_a_time(queue: Face, judged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "UNCOVERED", 7)
    queue.plain.cancel_many(name="wait")
    which = TaskFilter(states=("cancelled", "failed"), search="3")
    found, pages = list[int](), 0
    below: int | None = NEVER
    while below is not None:
        page, _ = walk(queue, which, limit=4, start=Start(below), keep=(lambda task: True) if judged else None)
        found += [task.seq for task in page.tasks]
        below = page.tasks[-1].seq if len(page.tasks) == 4 else page.stopped
        pages += 1
    assert found == [task.seq for task in queue.do(lambda: list_tasks(which, limit=100))]
    assert len(found) == 13
    assert pages >= 40 // 8


def test_an_empty_queue_has_empty_pages(database_url: str) -> None:
    with open_queue(database_url) as queue:
        assert walk(queue, COMPLETED, limit=5)[0] == Walk()
