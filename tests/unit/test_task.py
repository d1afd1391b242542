"""The values everything speaks about: a task's questions about itself, and its ids."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib import TaskNotFound, TaskQueue
from tasklib.core.queue_info import QueueStats
from tasklib.core.task import (
    Task,
    TaskState,
    has_error,
    has_result,
    is_completed,
    is_failed,
    is_pending,
    is_running,
    is_terminal,
)
from tasklib.core.task_id import TaskId, TaskIds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def a_task(**changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": UUID(int=1),
        "name": "send_email",
        "state": TaskState.PENDING,
        "scheduled_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Task(**values | changes)


def test_the_payload_is_the_kwargs():
    assert a_task(kwargs={"to": "a@b.c"}).payload == {"to": "a@b.c"}


def test_max_attempts_is_one_more_than_max_retries():
    assert a_task(max_retries=3).max_attempts == 4


@pytest.mark.parametrize(
    "changes, due_at",
    [
        ({}, NOW),
        ({"next_retry_at": LATER}, LATER),
        ({"state": TaskState.FAILED, "next_retry_at": LATER}, LATER),
        ({"state": TaskState.FAILED, "completed_at": NOW}, None),
        ({"state": TaskState.RUNNING}, None),
        ({"state": TaskState.COMPLETED, "completed_at": NOW}, None),
    ],
    ids=str,
)
def test_only_a_waiting_task_is_due(changes: dict[str, Any], due_at: datetime | None):
    assert a_task(**changes).due_at == due_at


@pytest.mark.parametrize(
    "question, state",
    [
        (is_pending, TaskState.PENDING),
        (is_running, TaskState.RUNNING),
        (is_completed, TaskState.COMPLETED),
        (is_failed, TaskState.FAILED),
    ],
)
def test_a_question_about_a_state_is_true_in_that_state_only(question: Callable[[Task], bool], state: TaskState):
    assert [each for each in TaskState if question(a_task(state=each))] == [state]


def test_a_failed_task_is_terminal_only_without_a_retry_to_come():
    waiting = a_task(state=TaskState.FAILED, next_retry_at=LATER)
    given_up = a_task(state=TaskState.FAILED, completed_at=NOW)

    assert (is_terminal(waiting), is_terminal(given_up)) == (False, True)


def test_a_result_of_none_is_a_result():
    assert has_result(a_task(result={"value": None}))


def test_a_task_that_has_not_finished_has_neither_result_nor_error():
    task = a_task()

    assert (has_result(task), has_error(task)) == (False, False)


def test_an_error_is_told():
    assert has_error(a_task(error="Traceback …"))


def test_a_task_cannot_be_changed():
    task: Any = a_task()

    with pytest.raises(AttributeError):
        task.state = TaskState.COMPLETED


def test_a_task_crosses_to_another_process_unchanged():
    task = a_task(kwargs={"n": 1}, tags={"batch": "daily"})

    assert pickle.loads(pickle.dumps(task)) == task


def test_a_state_is_its_text():
    assert f"{TaskState.BURIED}" == "buried"


def test_a_task_id_equals_and_hashes_as_its_uuid():
    plain = uuid4()

    assert {TaskId(plain): "found"}[plain] == "found"


def test_a_task_id_is_written_as_its_uuid():
    plain = uuid4()

    assert str(TaskId(plain, created=False)) == str(plain)


def test_a_task_id_knows_whether_a_row_was_made():
    assert (TaskId(uuid4()).created, TaskId(uuid4(), created=False).created) == (True, False)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copied_task_id_still_knows_it(duplicate: Callable[[Any], Any]):
    with TaskQueue("sqlite:///:memory:") as queue:
        original = TaskId(uuid4(), created=False)
        original.made_by(queue)
        many = ids_of(uuid4(), uuid4())
        many.made_by(queue)

        assert (duplicate(original), duplicate(original).created) == (original, False)
        assert (list(duplicate(many)), duplicate(many).created) == (list(many), 1)


def ids_of(*made: UUID) -> TaskIds:
    ids = TaskIds()
    ids.extend(TaskId(each, created=index % 2 == 0) for index, each in enumerate(made))
    return ids


def test_many_ids_come_back_in_the_order_of_submission():
    made = [uuid4() for _ in range(5)]

    assert list(ids_of(*made)) == made


def test_many_ids_can_be_indexed_and_sliced():
    made = [uuid4() for _ in range(5)]
    ids = ids_of(*made)

    assert (ids[0], ids[-1], ids[1:3], ids[::-2]) == (made[0], made[-1], made[1:3], made[::-2])


def test_an_index_beyond_the_end_is_an_index_error():
    with pytest.raises(IndexError):
        ids_of(uuid4())[1]


def test_many_ids_count_the_new_rows():
    assert ids_of(uuid4(), uuid4(), uuid4()).created == 2


def test_ids_that_are_not_kept_still_count_the_new_rows():
    ids = TaskIds(keep=False)
    ids.extend([TaskId(uuid4()), TaskId(uuid4(), created=False)])

    assert (list(ids), ids.created) == ([], 1)


def test_the_total_counts_each_task_once():
    stats = QueueStats(
        pending=1, running=2, completed=3, failed=4, cancelled=5, buried=6, delayed=1, retrying=4, waiting=0, by_name={}
    )

    assert stats.total == 21


@pytest.mark.parametrize(
    "ask",
    [is_pending, is_running, is_completed, is_failed, is_terminal, has_result, has_error],
    ids=lambda ask: ask.__name__,
)
def test_what_is_no_task_is_refused_with_what_to_write(ask: Callable[[Any], bool]) -> None:
    for given, remedy in ((None, "if task is not None"), (uuid4(), "queue.get"), (str(uuid4()), "queue.get")):
        with pytest.raises(TaskNotFound, match=remedy):
            ask(given)
