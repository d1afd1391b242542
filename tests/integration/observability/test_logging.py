"""The log lines of a task's life, and the context that structlog and loguru give to what a task logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from loguru import logger

from tasklib import TaskQueue
from tasklib.contrib import loguru as contrib_loguru
from tasklib.contrib import structlog as contrib_structlog
from tests.fixtures.waiting import aeventually


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with TaskQueue("sqlite:///:memory:") as queue:
        yield queue


def test_the_life_of_a_task_is_logged(queue: TaskQueue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "tasklib")

    @queue.task(max_retries=0)
    def divide(by: int) -> float:
        return 1 / by

    good, bad = divide.submit(2), divide.submit(0)
    divide.submit_many([{"by": 1}] * 3)
    queue.process_batch()

    lines = [
        (each.levelname, each.name, getattr(each, "task_id", None), each.message.partition(": ")[2] or each.message)
        for each in caplog.records
    ]
    assert ("DEBUG", "tasklib.queue", str(good), f"task divide {good} enqueued") in lines
    assert ("DEBUG", "tasklib.queue", None, "3 tasks divide enqueued") in lines
    assert any(text.startswith(f"{__name__}.") for _, name, _, text in lines if name == "tasklib.queue")  # registered
    of_good = [(level, text.split(" after ")[0]) for level, _, task, text in lines if task == str(good)][1:]
    assert of_good == [("DEBUG", "started"), ("DEBUG", "completed")]
    assert any(task == str(good) and " after 0." in text for _, _, task, text in lines)
    of_bad = [(level, text) for level, _, task, text in lines if task == str(bad)][1:]
    assert of_bad[0] == ("DEBUG", "started")
    assert of_bad[1][0] == "WARNING"
    assert "ZeroDivisionError" in of_bad[1][1]


def test_no_line_has_arguments_results_or_tags(queue: TaskQueue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "tasklib")

    @queue.task(max_retries=0)
    def answer(to: str, fail: bool) -> str:
        if fail:
            raise OSError("nobody is there")
        return f"told {to}"

    ids = [answer.options(tags={"for": "private"}).submit("private", fail=fail) for fail in (False, True)]
    answer.submit_many([{"to": "private", "fail": False}] * 2)
    queue.process_batch()

    assert queue.wait(ids[0]).result == {"value": "told private"}
    assert "nobody is there" in caplog.text
    assert "private" not in repr([vars(record) for record in caplog.records])


async def test_tasks_that_no_worker_defines_are_reported_as_skipped(
    queue: TaskQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.aenqueue("nobody.knows")
    worker = asyncio.create_task(queue.arun())
    await aeventually(lambda: "tasks are skipped that no live worker takes: nobody.knows" in caplog.text)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


def test_nothing_is_formatted_when_nobody_listens(queue: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a record was made")

    logging.getLogger("tasklib").setLevel("INFO")
    monkeypatch.setattr(logging.Logger, "makeRecord", fail)
    try:

        @queue.task
        async def work() -> None: ...

        work.submit()
        work.submit_many([{}] * 3)
    finally:
        logging.getLogger("tasklib").setLevel("NOTSET")


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_structlog_carries_the_context_from_submission_to_attempt(queue: TaskQueue, kind: str) -> None:
    seen: list[dict[str, Any]] = []

    def body() -> None:
        seen.append(dict(structlog.contextvars.get_contextvars()))
        raise ValueError

    if kind == "def":

        @queue.task(name="work", max_retries=0)
        def work() -> None:
            body()

    else:

        @queue.task(name="work", max_retries=0)
        async def work_async() -> None:
            body()

    contrib_structlog.bind(queue, carry=["request_id"])
    with structlog.contextvars.bound_contextvars(request_id="r-1", password="hidden"):
        task_id = queue.enqueue("work")
    queue.process_batch()

    assert seen == [{"request_id": "r-1", "task_id": str(task_id), "task_name": "work", "attempt": 1}]
    assert structlog.contextvars.get_contextvars() == {}
    assert queue.get(task_id).headers == {"request_id": "r-1"}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_loguru_lines_name_their_task(queue: TaskQueue, kind: str) -> None:
    extras: list[dict[str, Any]] = []
    handler = logger.add(lambda message: extras.append(dict(message.record["extra"])), level="INFO")
    try:
        if kind == "def":

            @queue.task(name="work")
            def work() -> None:
                logger.info("working")

        else:

            @queue.task(name="work")
            async def work_async() -> None:
                logger.info("working")

        contrib_loguru.bind(queue, carry=["tenant"])
        task_id = queue.enqueue("work", headers={"tenant": "t-7"})
        queue.process_batch()
        logger.info("outside")
    finally:
        logger.remove(handler)

    assert extras == [{"tenant": "t-7", "task_id": str(task_id), "task_name": "work", "attempt": 1}, {}]
