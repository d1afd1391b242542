"""Submitting one task: what is stored, with which defaults and options, and when it is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib import ConfigurationError, InvalidArguments, TaskId, TaskState
from tests.fixtures.queues import Face, Instance

pytestmark = pytest.mark.full_matrix  # this file shows that both forms and all drivers do the same


def test_a_submitted_task_has_these_defaults(queue: Face):
    task_id = queue.enqueue("job", {"to": "a@b.c"})

    task = queue.read(task_id)
    assert (task.id, task.name, task.state) == (task_id, "job", TaskState.PENDING)
    assert (task.kwargs, task.payload, task.args) == ({"to": "a@b.c"}, {"to": "a@b.c"}, {})
    assert task.created_at == task.updated_at == task.scheduled_at == task.due_at == queue.now
    assert (task.priority, task.tags, task.headers, task.version) == (0, {}, {}, 0)
    assert (task.attempts, task.retry_count, task.lost_count, task.history) == (0, 0, 0, ())
    assert (task.started_at, task.completed_at, task.next_retry_at, task.locked_until) == (None,) * 4
    assert (task.result, task.error, task.worker_id, task.timeout_seconds) == (None,) * 4
    assert (task.unique_key, task.concurrency_key, task.expires_at, task.cancel_requested_at) == (None,) * 4
    assert (task.progress, task.progress_message) == (None, None)


def test_the_id_is_a_uuid_that_says_a_row_was_made(queue: Face):
    task_id = queue.enqueue("job")

    assert isinstance(task_id, TaskId)
    assert (task_id.created, task_id.version) == (True, 7)


def test_by_name_there_are_three_attempts_and_by_function_four(queue: Face):
    job = queue.plain.task(name="function")(_greet)

    assert queue.read(queue.enqueue("job")).max_attempts == 3
    assert queue.read(queue.via(job).submit("you")).max_attempts == 4


def test_max_attempts_is_one_more_than_max_retries(queue: Face):
    assert queue.read(queue.enqueue("job", max_attempts=1)).max_retries == 0


def test_every_option_is_stored(queue: Face):
    expires_at = queue.now + timedelta(days=1)
    options: dict[str, Any] = {
        "priority": -7,
        "tags": {"batch": "daily", "n": 1},
        "max_retries": 9,
        "timeout_seconds": 0.25,
        "unique_key": "k",
        "concurrency_key": "tenant-7",
        "headers": {"request": "r-1"},
        "expires_at": expires_at,
    }

    task = queue.read(queue.enqueue("job", None, **options))

    assert {name: getattr(task, name) for name in options} == options


def test_options_of_the_submission_win_over_those_of_the_task(queue: Face):
    job = queue.plain.task(name="job", priority=1, max_retries=1, timeout_seconds=1, tags={"a": 1, "b": 1})(_greet)

    plain = queue.read(queue.via(job).submit("you"))
    chosen = queue.read(
        queue.via(job.options(priority=2, max_retries=2, timeout_seconds=2, tags={"b": 2})).submit("me")
    )

    assert (plain.priority, plain.max_retries, plain.timeout_seconds, plain.tags) == (1, 1, 1, {"a": 1, "b": 1})
    assert (chosen.priority, chosen.max_retries, chosen.timeout_seconds, chosen.tags) == (2, 2, 2, {"a": 1, "b": 2})


def test_positional_arguments_are_bound_to_their_names(queue: Face):
    job = queue.plain.task(name="job")(_greet)

    assert queue.read(queue.via(job).submit("you", greeting="Ho")).kwargs == {"name": "you", "greeting": "Ho"}


def test_arguments_that_do_not_fit_store_nothing(queue: Face):
    job = queue.plain.task(name="job")(_greet)

    with pytest.raises(InvalidArguments, match="name"):
        queue.via(job).submit(greeting=3)
    assert queue.count() == 0


def test_a_payload_is_any_json_value(queue: Face, worker: Instance):
    payloads = [{}, [], [1, [2]], "text", "", 0, 1.5, True, False, None]
    ids = [queue.enqueue("job", payload) for payload in payloads]

    assert [queue.read(task_id).payload for task_id in ids] == payloads
    assert [task.kwargs for task in worker.claim().tasks] == payloads


def test_without_a_payload_it_is_an_empty_object(queue: Face):
    assert queue.read(queue.enqueue("job")).payload == {}


def test_a_delay_counts_from_the_submission(queue: Face):
    task = queue.read(queue.enqueue("job", delay_seconds=90))

    assert task.scheduled_at == queue.now + timedelta(seconds=90)
    assert task.created_at == queue.now


def test_a_delay_may_be_a_timedelta_with_a_fraction(queue: Face):
    task = queue.read(queue.enqueue("job", delay_seconds=timedelta(milliseconds=1250)))

    assert task.scheduled_at == queue.now + timedelta(milliseconds=1250)


def test_run_at_is_kept_to_the_microsecond_whatever_its_time_zone(queue: Face):
    moment = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))

    task = queue.read(queue.enqueue("job", run_at=moment))

    assert task.scheduled_at == moment
    assert task.scheduled_at.utcoffset() == timedelta(0)


def test_a_moment_in_the_past_is_due_at_once(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", run_after=datetime(1999, 12, 31, tzinfo=UTC))

    assert worker.claim_ids() == [task_id]


def test_the_callers_own_id_is_kept(queue: Face):
    wanted = uuid4()

    assert queue.enqueue("job", id=wanted) == wanted
    assert queue.read(wanted).name == "job"


def test_the_same_id_again_is_the_same_task(queue: Face):
    wanted = uuid4()
    first = queue.enqueue("job", {"n": 1}, id=wanted)

    again = queue.enqueue("job", {"n": 2}, id=wanted)

    assert (again, first.created, again.created) == (wanted, True, False)
    assert [task.kwargs for task in queue.list()] == [{"n": 1}]


def test_the_same_id_again_changes_nothing_once_it_runs(queue: Face, worker: Instance):
    wanted = queue.enqueue("job")
    worker.take(wanted)
    before = queue.bytes_of(wanted)

    assert queue.enqueue("job", id=wanted.id) == wanted
    assert queue.bytes_of(wanted) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 2**31},
        {"priority": True},
        {"priority": 1.5},
        {"max_retries": -1},
        {"timeout_seconds": 0},
        {"timeout_seconds": -1},
        {"delay_seconds": -1},
        {"delay_seconds": float("nan")},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001  that is the mistake
        {"run_at": "2030-01-01"},
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay_seconds": 1},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"run_at": datetime.min.replace(tzinfo=UTC)},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001
        {"expires_at": datetime.max.replace(tzinfo=UTC)},
        {"tags": ["a"]},
        {"headers": "a"},
        {"unique_key": ""},
        {"unique_key": "x" * 501},
        {"unique_key": "a\0b"},
        {"unique_key": "a\ud800b"},
        {"concurrency_key": "a\ud800b"},
        {"on_conflict": "ignore"},
        {"id": "not-a-uuid"},
        {"max_attempts": 0},
        {"colour": "red"},
    ],
    ids=lambda wrong: ",".join(f"{name}={value!r}" for name, value in wrong.items())[:40].encode("ascii", "replace"),
)
@pytest.mark.backends("sqlite-memory")  # refused before any database is asked
def test_an_option_that_cannot_work_is_refused_by_name(queue: Face, wrong: dict[str, Any]):
    with pytest.raises(ConfigurationError, match=next(iter(wrong)).partition("_seconds")[0]):
        queue.enqueue("job", **wrong)
    assert queue.count() == 0


@pytest.mark.parametrize("name", ["", " job", "a\nb", "a\0b", "a\ud800b", 7, None], ids=ascii)
@pytest.mark.backends("sqlite-memory")
def test_a_name_that_cannot_be_told_apart_is_refused(queue: Face, name: Any):
    with pytest.raises(ConfigurationError, match="name"):
        queue.enqueue(name)
    assert queue.count() == 0


def test_names_are_kept_as_they_are(queue: Face):
    names = ["webhook.outbound", "пример", "名前", 'it\'s "quoted"; --', "%s :name {schema} $1", "UPPER", "upper"]
    worker = queue.worker(*names)
    ids = [queue.enqueue(name) for name in names]

    assert [queue.read(task_id).name for task_id in ids] == names
    assert [queue.list(name=name)[0].id for name in names] == ids
    assert [task.name for task in worker.claim().tasks] == names


def test_ids_of_one_process_grow_with_time(queue: Face):
    ids = [queue.enqueue("job") for _ in range(5)]

    assert ids == sorted(ids)
    assert all(isinstance(each, UUID) for each in ids)


def _greet(name: str, greeting: str = "Hi") -> str:
    return f"{greeting} {name}"


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_task_expires_so_long_after_it_is_due_by_the_database_clock(queue: Face, many: bool):
    @queue.plain.task(name="stale", expires_after=600)
    def stale() -> None:
        """Nobody wants it later."""

    for options in ({}, {"delay_seconds": 60}, {"run_at": queue.now + timedelta(hours=1)}):
        task = queue.via(stale.options(**options))
        task.submit_many([{}]) if many else task.submit()

    assert {task.expires_at - task.scheduled_at for task in queue.list()} == {timedelta(minutes=10)}
