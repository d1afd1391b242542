"""What a task's id knows: whom to ask for the result, and the type in which it arrives."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

import tasklib
from tasklib import (
    AsyncTaskContext,
    InvalidTaskId,
    NotInitialized,
    TaskContext,
    TaskFailed,
    TaskId,
    TaskNotFound,
    TaskQueue,
    WaitTimeout,
    injected,
)
from tasklib.queue import default

IN_MEMORY = "sqlite:///:memory:"


@dataclass
class Page:
    url: str
    seen: datetime


class Order(BaseModel):
    id: UUID
    pages: list[Page]


A_PAGE = Page("https://example.com", datetime(2026, 1, 2, tzinfo=UTC))
AN_ORDER = Order(id=UUID(int=7), pages=[A_PAGE])


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as made:
        yield made


@pytest.fixture
def memory() -> Iterator[TaskQueue]:
    with TaskQueue(IN_MEMORY) as made:
        yield made


def test_an_id_waits_for_the_value_that_its_task_returns(queue: TaskQueue) -> None:
    @queue.task
    def area(width: int, height: int) -> int:
        return width * height

    task_id = area.submit(6, 7)
    queue.process_batch()

    assert task_id.wait(timeout=180) == 42


async def test_awaiting_gives_the_same(queue: TaskQueue) -> None:
    @queue.task
    async def area(width: int, height: int) -> int:
        return width * height

    submitted = [area.submit(6, 7), await area.asubmit(6, 7), await queue.aenqueue("area", {"width": 6, "height": 7})]
    await queue.aprocess_batch()

    assert [await each.await_(timeout=180) for each in submitted] == [42, 42, 42]


async def test_ids_of_submissions_that_were_merged_know_their_queue(queue: TaskQueue) -> None:
    @queue.task
    async def double(number: int) -> int:
        return 2 * number

    submitted = await asyncio.gather(*(double.asubmit(number) for number in range(20)))
    while await queue.aprocess_batch():
        pass

    assert [await each.await_(timeout=180) for each in submitted] == [2 * number for number in range(20)]


@pytest.mark.parametrize("returned, kind", [(A_PAGE, Page), (AN_ORDER, Order), (UUID(int=7), UUID), (None, None)])
def test_the_value_has_the_annotated_type(memory: TaskQueue, returned: Any, kind: Any) -> None:
    def produce() -> Any:
        return returned

    produce.__annotations__["return"] = kind
    task_id = memory.task(produce).submit()
    memory.process_batch()

    assert task_id.wait() == returned


def test_a_type_of_the_surrounding_function_is_found(memory: TaskQueue) -> None:
    @dataclass
    class Local:
        number: int

    @memory.task
    def produce() -> Local:
        return Local(7)

    task_id = produce.submit()
    memory.process_batch()

    assert task_id.wait() == Local(7)


def test_a_value_that_does_not_fit_its_annotation_arrives_as_it_was_stored(memory: TaskQueue) -> None:
    @memory.task
    def produce() -> int:
        return "seven"  # type: ignore[return-value]

    task_id = produce.submit()
    memory.process_batch()

    assert task_id.wait() == "seven"


@pytest.mark.backends("sqlite-file", "postgres")  # two queues on one database
def test_without_the_function_the_value_is_json(database_url: str) -> None:
    with TaskQueue(database_url) as producer, TaskQueue(database_url) as worker:

        @worker.task
        def produce() -> Page:
            return A_PAGE

        task_id = producer.enqueue("produce")
        worker.process_batch()

        assert task_id.wait(timeout=180) == {"url": "https://example.com", "seen": "2026-01-02T00:00:00Z"}


def test_a_failed_task_is_an_error_that_has_the_task(queue: TaskQueue) -> None:
    @queue.task(max_retries=0)
    def fail() -> int:
        raise ValueError("no such row")

    task_id = fail.submit()
    queue.process_batch()

    with pytest.raises(
        TaskFailed, match=r"'fail' failed after 1 of 1 attempts with: ValueError: no such row"
    ) as caught:
        task_id.wait(timeout=180)
    assert (caught.value.task.id, caught.value.task_id) == (task_id, task_id)
    assert "Traceback" in (caught.value.task.error or "")
    assert pickle.loads(pickle.dumps(caught.value)).task == caught.value.task


async def test_a_cancelled_task_is_one_too(queue: TaskQueue) -> None:
    task_id = queue.enqueue("nothing")
    queue.cancel(task_id)

    with pytest.raises(TaskFailed, match="was cancelled after 0 of 3 attempts") as caught:
        await task_id.await_(timeout=180)
    assert caught.value.task.state == "cancelled"


def test_a_time_that_is_over_is_an_error(memory: TaskQueue) -> None:
    with pytest.raises(WaitTimeout, match="was still pending after 0 s"):
        memory.enqueue("nothing").wait(timeout=0)


def test_an_id_of_no_task_is_an_error(memory: TaskQueue) -> None:
    task_id = memory.enqueue("nothing")
    memory.cancel(task_id)
    memory.delete(task_id)

    with pytest.raises(TaskNotFound, match=str(task_id)):
        task_id.wait(timeout=180)


def test_an_id_made_from_text_asks_the_default_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "_default", default._Default())
    tasklib.init(IN_MEMORY)

    @tasklib.task
    def area(width: int, height: int) -> int:
        return width * height

    text = str(area.submit(6, 7))
    tasklib.default_queue().process_batch()

    assert TaskId(text).wait(timeout=180) == 42
    assert TaskId[int](text).wait(timeout=180) == 42
    assert pickle.loads(pickle.dumps(TaskId(text))).wait(timeout=180) == 42
    tasklib.default_queue().close()


def test_without_a_default_queue_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "_default", default._Default())

    with pytest.raises(NotInitialized, match=r"tasklib\.init"):
        TaskId(uuid4()).wait()


@pytest.mark.parametrize("given", ["", "seven", None, 7])
def test_what_is_no_id_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTaskId, match="a task's id is a UUID"):
        TaskId(given)


def test_a_default_that_is_injected_is_filled_in(queue: TaskQueue) -> None:
    @queue.task
    def kind(path: str, *, ctx: TaskContext = injected(), depth: int = 1) -> str:
        return f"{type(ctx).__name__} {path} {depth} {ctx.attempt}"

    task_id = kind.submit("rows.csv", depth=2)
    queue.process_batch()

    assert task_id.wait(timeout=180) == "TaskContext rows.csv 2 1"


def test_a_first_parameter_is_the_context_if_asked_for(queue: TaskQueue) -> None:
    @queue.task(context=True)
    def annotated(ctx: TaskContext, path: str) -> str:
        return f"{type(ctx).__name__} {path}"

    @queue.task(context=True, name="bare.context")
    async def bare(ctx, path):  # type: ignore[no-untyped-def]
        return f"{type(ctx).__name__} {path}"

    submitted = [annotated.submit("a"), bare.submit("b"), queue.enqueue("annotated", {"path": "c"})]
    queue.process_batch()

    assert [each.wait(timeout=180) for each in submitted] == ["TaskContext a", "AsyncTaskContext b", "TaskContext c"]


@pytest.mark.parametrize("annotation", [TaskContext, AsyncTaskContext])
def test_a_coroutine_gets_the_awaiting_context_however_it_is_annotated(memory: TaskQueue, annotation: Any) -> None:
    async def kind(ctx: Any) -> list[str]:
        return [type(ctx).__name__, type(tasklib.current_context()).__name__]

    kind.__annotations__["ctx"] = annotation
    task_id = memory.task(kind).submit()
    memory.process_batch()

    assert task_id.wait() == ["AsyncTaskContext", "AsyncTaskContext"]


def test_in_a_plain_call_a_context_may_be_given(memory: TaskQueue) -> None:
    @memory.task(context=True)
    def kind(ctx: TaskContext, path: str) -> str:
        return f"{ctx!r} {path}"

    with pytest.raises(TypeError):
        kind("x")  # type: ignore[call-arg, arg-type]
    assert kind("ctx", "x") == "'ctx' x"  # type: ignore[arg-type]


def test_ids_of_a_flow_and_of_a_schedule_ask_their_own_queue(queue: TaskQueue):
    @queue.task
    async def page() -> Page:
        return A_PAGE

    flow = queue.flow("pages")
    node = flow.add(page.bind())
    queue.add_schedule("pages", task="page", every=3600.0)

    ids = [*flow.submit(), node.id, queue.run_schedule("pages")]
    queue.process_batch()

    assert [task_id.wait() for task_id in ids if task_id is not None] == [A_PAGE] * 3


def test_ids_of_many_ask_their_own_queue_and_say_whether_they_are_new(queue: TaskQueue) -> None:
    @queue.task
    def double(number: int) -> int:
        return number * 2

    ids = double.submit_many({"number": number} for number in (5, 6))
    keyed = double.options(unique_key="one")
    held = keyed.submit(7)
    again = keyed.submit_many([{"number": 8}])
    queue.process_batch()

    assert [each.wait(timeout=180) for each in [*ids, ids[-1], *again]] == [10, 12, 12, 14]
    assert asyncio.run(ids[0].await_(timeout=180)) == 10
    assert (list(again), [each.created for each in again], [each.created for each in ids]) == (
        [held],
        [False],
        [True] * 2,
    )
