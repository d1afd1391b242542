"""Whatever a producer sends, lists stay small and quick, and say what they leave out; a task by itself is whole."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

SECRET = "hunter2-hunter2"
LARGE = 200_000


def test_a_list_shows_the_beginning_of_each_task_and_the_task_page_all_of_it(queue: Face, http: Client):
    texts = {"first": "x" * 3000, "then": "y" * 100}
    small = http.create(payload={"a": 1})["id"]
    medium = http.create(payload=texts, tags={"t": "z" * 3000})["id"]
    large = [http.create(payload={"k": "v", "list": ["w" * 1000] * 300}, tags={"a": "b"})["id"] for _ in range(20)]

    page = http.get("/api/tasks?limit=100")
    tasks = {each["id"]: each for each in page.json()["tasks"]}

    assert len(page.content) < 100_000
    assert (tasks[small]["payload"], tasks[small]["truncated"]) == ({"a": 1}, [])
    assert tasks[medium]["truncated"] == ["payload", "tags"]
    assert 1800 < len(tasks[medium]["payload"]["first"]) < 2000
    for each in large:
        assert tasks[each]["payload"]["k"] == "v"
        assert {"payload", "tags"} <= set(tasks[each]["truncated"])
        whole = http.get(f"/api/tasks/{each}").json()
        assert (whole["truncated"], whole["tags"], len(whole["payload"]["list"])) == ([], {"a": "b"}, 300)
    assert http.get(f"/api/tasks/{medium}").json()["payload"] == texts
    found = http.get("/api/tasks?search=hunter").json()["tasks"] + http.get("/api/tasks?tag=a%3Db").json()["tasks"]
    assert {each["id"] for each in found} <= set(large)
    assert len(queue.list(limit=100)[0].kwargs["list"]) == 300  # a program that asks for tasks gets tasks


def test_what_is_cut_off_never_shows_a_secret_elsewhere(queue: Face, http: Client):
    payload = {"filler": "x" * LARGE, "password": SECRET}
    made = http.create(payload=payload, tags={"t": SECRET}, uniqueKey=f"key {SECRET}")["id"]
    worker = queue.worker()
    claimed = worker.take(made)
    worker.give_up(claimed, error=f"ValueError: no {SECRET} here")

    for path in ("/api/tasks", "/api/tasks?status=failed", "/api/tasks?type=job", f"/api/tasks/{made}"):
        text = http.get(path).text
        assert made in text
        assert SECRET not in text
        assert "ValueError" in text


def test_a_row_that_cannot_be_read_is_marked(queue: Face, http: Client):
    queue.sql(f"INSERT INTO tasks (name, kwargs) VALUES ('job', '{'[' * 500}{']' * 500}')")
    (task,) = http.get("/api/tasks").json()["tasks"]

    assert task["payload"] is None
    assert "kwargs cannot be read" in task["unreadable"]
    assert http.get(f"/api/tasks/{task['id']}").json()["unreadable"] == task["unreadable"]


@pytest.mark.backends("sqlite-file")
def test_counting_takes_work_in_proportion_to_the_number_of_names(queue: Face):
    def steps(names: int) -> int:
        invent(queue, names)
        with counted_lines() as lines:
            stats = queue.plain.stats()
        assert (len(stats.by_name), stats.total) == (names, ROWS)
        return lines.all

    few, many = steps(1_000), steps(10_000)
    assert many < 11.5 * few


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_the_service_answers_others_while_it_counts_many_names(queue: Face, http: Client):
    """Its event loop, which answers them, does no more in one go than for few names; from the first request on."""
    counting = ["/api/tasks/stats", "/api/types", "/api/scale", "/api/findings", "/metrics"]
    assert [http.get(path).status_code for path in counting] == [200] * 5  # whatever is loaded and made once
    invent(queue, 10_000)
    for path in counting:
        fresh = Client(queue, queue.plain.asgi(auth=None))
        assert fresh.get("/healthz").status_code == 200
        with counted_lines() as lines:
            assert fresh.get(path).status_code == 200
        fresh.close()
        assert lines.longest < 40_000, f"{path}: more than four for each name"


ROWS = 21_000
"""More than are counted one by one."""


def invent(queue: Face, names: int) -> None:
    queue.sql("DELETE FROM tasks")
    rows = f"SELECT 1 AS n UNION ALL SELECT n + 1 FROM series WHERE n < {ROWS}"
    quoted = f"'type ' || (n % {names})"
    queue.sql(f"WITH RECURSIVE series AS ({rows}) INSERT INTO tasks (name) SELECT {quoted} FROM series")


class Lines:
    """Lines of Python that this thread has run: all of them, and the most in one turn of its event loop."""

    def __init__(self) -> None:
        self.all = self.longest = self._turn = 0

    def note(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.all += 1
            self._turn += 1
            self.longest = max(self.longest, self._turn)
        elif event == "call" and frame.f_code is asyncio.Handle._run.__code__:
            self._turn = 0
        return self.note


@contextmanager
def counted_lines() -> Iterator[Lines]:
    lines = Lines()
    before = sys.gettrace()
    sys.settrace(lines.note)
    try:
        yield lines
    finally:
        sys.settrace(before)
