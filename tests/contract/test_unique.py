"""Unique keys: per name, one live task, held until it is terminal, enforced by the database."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest

from tasklib import TaskId, TaskState, UniqueConflict
from tasklib.core.lifecycle import LIVE, TERMINAL, WAITING, Phase, phase_of
from tests.fixtures.queues import Face

RACERS = 64


def test_the_holder_is_returned_and_no_row_is_made(queue: Face):
    first = queue.enqueue("job", {"n": 1}, unique_key="k")

    second = queue.enqueue("job", {"n": 2}, unique_key="k")

    assert second == first
    assert (first.created, second.created) == (True, False)
    assert [task.kwargs for task in queue.list()] == [{"n": 1}]


def test_raise_names_the_holder_and_stores_nothing(queue: Face):
    holder = queue.enqueue("job", unique_key="k")

    with pytest.raises(UniqueConflict, match="'k'") as caught:
        queue.enqueue("job", unique_key="k", on_conflict="raise")

    assert (caught.value.name, caught.value.unique_key, caught.value.existing_id) == ("job", "k", holder)
    assert queue.count() == 1


@pytest.mark.parametrize("phase", sorted(WAITING))
def test_replace_rewrites_a_waiting_task_in_place(queue: Face, phase: Phase):
    old = queue.task_in(phase, unique_key="k", payload={"n": 1}, priority=1, tags={"a": 1}, headers={"h": 1})

    answer = queue.enqueue(
        "job", {"n": 2}, unique_key="k", on_conflict="replace", delay_seconds=7, max_retries=8, timeout_seconds=9
    )

    task = queue.read(old.id)
    assert (answer, answer.created) == (old.id, False)
    assert (task.state, task.kwargs, task.next_retry_at) == (TaskState.PENDING, {"n": 2}, None)
    assert (task.scheduled_at, task.updated_at) == (queue.now + timedelta(seconds=7), queue.now)
    assert (task.max_retries, task.timeout_seconds, task.priority, task.tags, task.headers) == (8, 9, 0, {}, {})
    assert (task.attempts, task.retry_count, task.error) == (0, 0, None)
    assert (task.version, task.created_at, task.seq) == (old.version, old.created_at, old.seq)
    assert queue.count() == 1


def test_replace_without_a_holder_is_a_plain_submission(queue: Face):
    assert queue.enqueue("job", unique_key="k", on_conflict="replace").created


@pytest.mark.parametrize("on_conflict", ["return", "raise"])
@pytest.mark.parametrize("phase", sorted(WAITING))
def test_a_task_past_its_expiry_holds_its_key_against_nobody(queue: Face, phase: Phase, on_conflict: str):
    old = queue.task_in(phase, unique_key="k", expires_at=queue.now + timedelta(days=2))
    queue.advance(3 * 86_400)

    answer = queue.enqueue("job", {"n": 2}, unique_key="k", on_conflict=on_conflict)

    ended = queue.read(old.id)
    assert (answer == old.id, answer.created, queue.read(answer).state) == (False, True, TaskState.PENDING)
    assert (ended.state, ended.completed_at, ended.attempts) == (TaskState.CANCELLED, queue.now, old.attempts)
    assert "Expired" in (ended.error or "")


def test_replace_of_a_running_task_raises_and_changes_nothing(queue: Face):
    running = queue.task_in(Phase.RUNNING, unique_key="k")
    before = queue.bytes_of(running.id)

    with pytest.raises(UniqueConflict, match="running"):
        queue.enqueue("job", {"n": 2}, unique_key="k", on_conflict="replace")

    assert queue.bytes_of(running.id) == before
    assert queue.count() == 1


def test_keys_are_per_name(queue: Face):
    ids = {queue.enqueue(name, unique_key="k") for name in ("a", "b")}

    assert len(ids) == 2


def test_keys_are_told_apart_to_the_letter(queue: Face):
    ids = {queue.enqueue("job", unique_key=key) for key in ("k", "K", "k ", "ĸ")}

    assert len(ids) == 4


def test_tasks_without_a_key_never_conflict(queue: Face):
    assert len({queue.enqueue("job", on_conflict="raise") for _ in range(3)}) == 3


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_a_live_task_holds_its_key(queue: Face, phase: Phase):
    holder = queue.task_in(phase, unique_key="k")

    assert queue.enqueue("job", unique_key="k") == holder.id


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_a_terminal_task_has_let_its_key_go(queue: Face, phase: Phase):
    ended = queue.task_in(phase, unique_key="k")

    fresh = queue.enqueue("job", unique_key="k", on_conflict="raise")

    assert fresh.created
    assert fresh != ended.id


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_retry_by_hand_against_a_live_key_changes_nothing(queue: Face, phase: Phase):
    ended = queue.task_in(phase, unique_key="k")
    holder = queue.enqueue("job", unique_key="k")
    before = queue.bytes_of(ended.id)

    with pytest.raises(UniqueConflict) as caught:
        queue.retry(ended.id)

    assert caught.value.existing_id == holder
    assert queue.bytes_of(ended.id) == before


def test_retry_by_hand_takes_a_free_key_again(queue: Face):
    ended = queue.task_in(Phase.COMPLETED, unique_key="k")

    queue.retry(ended.id)

    assert queue.enqueue("job", unique_key="k") == ended.id


def test_retry_of_a_task_that_holds_its_own_key_is_no_conflict(queue: Face):
    waiting = queue.task_in(Phase.RETRYING, unique_key="k")

    assert queue.retry(waiting.id).state == TaskState.PENDING


def test_racing_submitters_make_one_live_row(queue: Face):
    queue.count()  # the tables are there: what races is the submission

    def submit(n: int) -> TaskId:
        return queue.plain.enqueue("job", {"n": n}, unique_key="k")

    async def submit_all() -> list[TaskId]:
        return await asyncio.gather(*(queue.plain.aenqueue("job", {"n": n}, unique_key="k") for n in range(RACERS)))

    if queue.form == "awaiting":
        ids = queue.run_coroutine(submit_all())
    else:
        with ThreadPoolExecutor(RACERS) as threads:
            ids = list(threads.map(submit, range(RACERS)))

    assert len(set(ids)) == 1
    assert sum(task_id.created for task_id in ids) == 1
    assert queue.count() == 1


def test_racing_retries_bring_one_of_two_back_to_life(queue: Face):
    ended = [queue.task_in(Phase.COMPLETED, unique_key="k").id for _ in range(8)]

    def retry(task_id: UUID) -> str:
        try:
            return queue.plain.retry(task_id).state.value
        except UniqueConflict:
            return "conflict"

    with ThreadPoolExecutor(len(ended)) as threads:
        answers = list(threads.map(retry, ended))

    assert sorted(answers) == ["conflict"] * 7 + ["pending"]
    assert sorted(phase_of(queue.read(each)) for each in ended) == [Phase.COMPLETED] * 7 + [Phase.PENDING]
