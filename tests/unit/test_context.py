"""What a running task can ask and say."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import activate, current_context
from tasklib.core.calls.resources import WorkerState
from tasklib.core.calls.task_logger import MAX_MESSAGE_LENGTH
from tasklib.core.task import Task, TaskState
from tasklib.errors import ConfigurationError, ContextError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A_TASK = Task(
    UUID(int=7),
    "resize",
    TaskState.RUNNING,
    NOW,
    NOW,
    NOW,
    attempts=2,
    version=5,
    headers={"tenant": "seven"},
    worker_id="w-1",
)


class Reports(list[tuple[float, str | None]]):
    """Collects progress reports."""

    def __call__(self, fraction: float, message: str | None) -> None:
        self.append((fraction, message))


def test_the_context_answers_from_the_task():
    ctx = TaskContext(A_TASK)

    assert (ctx.task, ctx.attempt, ctx.headers, ctx.fencing_token, ctx.worker_id) == (
        A_TASK,
        2,
        {"tenant": "seven"},
        5,
        "w-1",
    )


def test_a_task_given_as_a_callable_is_made_once_and_only_when_asked_for():
    made: list[Task] = []

    def make() -> Task:
        made.append(A_TASK)
        return A_TASK

    ctx = TaskContext(make)
    before = len(made)

    assert (before, ctx.attempt, ctx.fencing_token, len(made)) == (0, 2, 5, 1)


def test_the_first_attempt_is_one_even_where_nothing_was_claimed():
    task = Task(UUID(int=1), "inline", TaskState.PENDING, NOW, NOW, NOW)

    assert TaskContext(task).attempt == 1


def test_a_context_is_not_cancelled_until_the_worker_says_so():
    ctx = TaskContext(A_TASK)
    before = ctx.cancelled
    ctx.ask_to_end()

    assert (before, ctx.cancelled) == (False, True)


def test_waiting_for_a_cancel_ends_at_once_when_it_came_before():
    ctx = TaskContext(A_TASK)
    ctx.ask_to_end()

    assert ctx.wait_cancelled(timeout=60)


def test_waiting_for_a_cancel_ends_when_it_comes():
    ctx = TaskContext(A_TASK)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(ctx.wait_cancelled(timeout=60)))
    thread.start()
    ctx.ask_to_end()
    thread.join(timeout=60)

    assert answers == [True]


def test_waiting_for_a_cancel_that_does_not_come_answers_false():
    assert not TaskContext(A_TASK).wait_cancelled(timeout=0)


def test_progress_goes_to_the_worker():
    reports = Reports()
    TaskContext(A_TASK, report=reports).progress(0.4, "resizing")

    assert reports == [(0.4, "resizing")]


def test_progress_needs_no_worker():
    TaskContext(A_TASK).progress(1)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, 40, float("nan"), float("inf"), "0.4", True, None])
def test_progress_that_is_no_fraction_is_refused_with_its_value(wrong: Any):
    with pytest.raises(ConfigurationError, match=r"fraction from 0 to 1, got "):
        TaskContext(A_TASK).progress(wrong)


def test_progress_a_hair_beyond_one_is_one():
    reports = Reports()
    TaskContext(A_TASK, report=reports).progress(sum([0.1] * 10) + 2e-16)

    assert reports == [(1.0, None)]


def test_a_long_progress_message_is_cut():
    reports = Reports()
    TaskContext(A_TASK, report=reports).progress(0.5, "x" * 10_000)

    assert len(str(reports[0][1])) == MAX_MESSAGE_LENGTH


def test_a_progress_message_holds_nothing_a_database_refuses():
    reports = Reports()
    TaskContext(A_TASK, report=reports).progress(0.5, "a\0b\ud800c")

    assert reports == [(0.5, "ab?c")]


def test_a_log_record_carries_the_details_of_the_attempt(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "tasklib.task"):
        TaskContext(A_TASK).log.info("resized %d", 3)
    record: Any = caplog.records[0]

    assert (record.getMessage(), record.name) == ("resized 3", "tasklib.task")
    assert (record.task_id, record.task_name, record.attempt, record.worker_id) == (
        str(A_TASK.id),
        "resize",
        2,
        "w-1",
    )


def test_a_log_call_keeps_its_own_extra(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "tasklib.task"):
        TaskContext(A_TASK).log.info("resized", extra={"width": 80})
    record: Any = caplog.records[0]

    assert (record.width, record.attempt) == (80, 2)


@pytest.mark.parametrize(
    "write",
    [lambda log: log("resized"), lambda log: log.info("resized"), lambda log: log.log(logging.INFO, "resized")],
    ids=["call", "info", "log"],
)
def test_a_log_record_names_the_line_of_the_task(write: Callable[[Any], None], caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "tasklib.task"):
        write(TaskContext(A_TASK).log)

    assert caplog.records[0].pathname == __file__


def test_a_line_is_kept_on_the_task_whatever_level_the_program_logs_at():
    kept: list[tuple[str, str]] = []
    TaskContext(A_TASK, record=lambda level, text: kept.append((level, text))).log.info("resized %d of %d", 1, 2)

    assert kept == [("INFO", "resized 1 of 2")]


def test_a_line_whose_arguments_do_not_fit_is_kept_with_them():
    kept: list[str] = []
    log = TaskContext(A_TASK, record=lambda level, text: kept.append(text)).log
    log.logger.disabled = True  # the logging module would print its own complaint
    try:
        log.info("resized %d", "many")
    finally:
        log.logger.disabled = False

    assert kept == ["resized %d ('many',)"]


def test_a_context_without_transaction_says_how_to_get_a_connection():
    with pytest.raises(ContextError, match=r"'resize' .*@task\(transactional=True\)"):
        _ = TaskContext(A_TASK).connection


def test_a_transactional_task_gets_its_connection():
    connection = object()

    assert TaskContext(A_TASK, connection=connection).connection is connection


def test_the_state_holds_what_start_up_hooks_set():
    state = WorkerState()
    state.db = "engine"

    assert TaskContext(A_TASK, state=state).state.db == "engine"


def test_a_missing_resource_is_named_with_those_that_were_set():
    with pytest.raises(ContextError, match=r"resource 'cache' \(set: db, http\)"):
        _ = WorkerState(http=1, db=2).cache


def test_asking_whether_a_resource_exists_is_possible():
    assert not hasattr(WorkerState(), "cache")


def test_a_state_can_be_copied():
    assert copy.deepcopy(WorkerState(db=1)) == WorkerState(db=1)


def test_outside_a_task_there_is_no_context():
    with pytest.raises(ContextError, match="no task is running here"):
        current_context()


def test_outside_a_task_the_default_is_given():
    assert current_context(None) is None


def test_code_inside_a_task_finds_its_context():
    ctx = TaskContext(A_TASK)
    with activate(ctx):
        found = current_context()

    assert (found, current_context(None)) == (ctx, None)


def test_the_context_is_reset_when_the_task_raises():
    with pytest.raises(ZeroDivisionError), activate(TaskContext(A_TASK)):
        _ = 1 / 0

    assert current_context(None) is None


def test_a_task_run_inside_another_finds_its_own_context():
    outer, inner = TaskContext(A_TASK), TaskContext(A_TASK)
    with activate(outer):
        with activate(inner):
            first = current_context()
        second = current_context()

    assert (first, second) == (inner, outer)


async def test_tasks_beside_each_other_on_the_loop_find_their_own_context():
    together = asyncio.Barrier(2)

    async def run(ctx: TaskContext) -> bool:
        with activate(ctx):
            await together.wait()
            return current_context() is ctx

    assert await asyncio.gather(run(TaskContext(A_TASK)), run(TaskContext(A_TASK))) == [True, True]
