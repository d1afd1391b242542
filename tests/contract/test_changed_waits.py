"""Code that asks for something else than its task waits for: the task waits for what is asked, or is parked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tasklib import AsyncTaskContext, TaskState
from tasklib.storage.operations.workflows import steps
from tasklib.storage.operations.workflows.events import list_questions
from tests.contract.test_steps import finish
from tests.fixtures.queues import Face


class Changing:
    """A workflow that asks for one thing, in a version of its code that the test chooses."""

    def __init__(self, queue: Face) -> None:
        self.queue = queue
        self.asked: Callable[[Any], Any] = ASKS["sleep"]
        self.named = False
        """Whether the wait has the same name in every version."""

        @queue.task
        async def child(ctx: AsyncTaskContext, n: int) -> int:
            return await ctx.wait("go", int) + n

        @queue.task(max_retries=0)
        async def workflow(ctx: AsyncTaskContext) -> Any:
            return await self.asked(ctx.options(name="gate") if self.named else ctx)

        self.workflow = workflow
        CHILDREN["child"] = child

    def begin(self, first: str) -> Any:
        """The id of a task that waits for the first."""
        self.asked = ASKS[first]
        task_id = self.workflow.submit()
        self.run()
        return task_id

    @property
    def questions(self) -> list[Any]:
        return self.queue.do(list_questions)

    def run(self) -> None:
        while self.queue.process_batch():
            pass

    def wake(self, task_id: Any) -> Any:
        """The task after it was woken, though nothing has come."""
        self.queue.do(lambda: steps.wake_tasks([str(task_id)]))
        self.run()
        return self.queue.read(task_id)

    def give(self, task_id: Any, what: str) -> Any:
        """The task after what it asks for has come."""
        match what:
            case "sleep":
                self.queue.advance(60)
            case "wait a" | "wait b":
                self.queue.emit(what[-1], what)
            case "ask" | "ask again":
                (question,) = self.questions
                self.queue.answer(task_id, question["key"], what)
            case _:
                self.queue.emit("go", 1)
        self.run()
        return self.queue.read(task_id)


CHILDREN: dict[str, Any] = {}


async def _all(ctx: Any) -> list[int]:
    return list((await ctx.map(CHILDREN["child"], [{"n": 1}])).results())


ASKS: dict[str, Callable[[Any], Any]] = {
    "sleep": lambda ctx: ctx.sleep(60),
    "wait a": lambda ctx: ctx.wait("a", str),
    "wait b": lambda ctx: ctx.wait("b", str),
    "ask": lambda ctx: ctx.wait("approval", str, ask="Delete the copy?"),
    "ask again": lambda ctx: ctx.wait("approval", str, ask="Delete everything?"),
    "run": lambda ctx: ctx.run(CHILDREN["child"].bind(1)),
    "map": _all,
}
KINDS = {"sleep": "sleep", "wait a": "wait", "ask": "question", "run": "run", "map": "map"}
WAITS_FOR = {
    "sleep": "sleep",
    "wait a": "event a",
    "wait b": "event b",
    "ask": "answer approval",
    "run": "children child",
    "map": "children child",
}
RESULTS: dict[str, Any] = {"sleep": None, "run": 2, "map": [2]}


@pytest.fixture
def changing(queue: Face) -> Changing:
    return Changing(queue)


@pytest.mark.parametrize("first, then", list(itertools.permutations(KINDS, 2)))
def test_another_kind_under_the_same_name_parks_the_task(queue: Face, changing: Changing, first: str, then: str):
    changing.named = True
    task_id = changing.begin(first)
    changing.asked = ASKS[then]

    def is_parked() -> bool:
        task = queue.read(task_id)
        both = f"recorded as a {KINDS[first]}, and the code now asks for a {KINDS[then]}"
        return task.state is TaskState.PENDING and (task.waits_for or "").startswith("code ") and both in task.error

    changing.wake(task_id)
    assert is_parked()
    changing.give(task_id, first)
    assert is_parked()
    queue.retry(task_id)
    changing.run()
    assert is_parked()

    changing.asked = ASKS[first]
    queue.retry(task_id)
    assert finish(queue, task_id).result == {"value": RESULTS.get(first, first)}


@pytest.mark.parametrize(
    "first, then", [pair for pair in itertools.permutations((*KINDS, "wait b"), 2) if set(pair) != {"run", "map"}]
)
def test_another_wait_under_its_own_name_is_waited_for(queue: Face, changing: Changing, first: str, then: str):
    """Woken with nothing come, or by what the old code has waited for."""
    task_id = changing.begin(first)
    changing.asked = ASKS[then]

    assert changing.wake(task_id).waits_for == WAITS_FOR[then]
    assert changing.give(task_id, first).waits_for == WAITS_FOR[then]
    assert changing.give(task_id, then).result == {"value": RESULTS.get(then, then)}


def test_an_open_wait_waits_for_the_event_that_is_asked_now(queue: Face, changing: Changing):
    changing.named = True
    task_id = changing.begin("wait a")
    changing.asked = ASKS["wait b"]

    assert changing.wake(task_id).waits_for == "event b"
    queue.emit("a", "first", to=task_id)
    assert changing.give(task_id, "wait a").waits_for == "event b"
    assert changing.give(task_id, "wait b").result == {"value": "wait b"}


def test_an_event_that_the_code_no_longer_asks_for_parks_the_task(queue: Face, changing: Changing):
    changing.named = True
    task_id = changing.begin("wait a")
    changing.asked = ASKS["wait b"]
    task = changing.give(task_id, "wait a")

    assert (task.waits_for or "").startswith("code ")
    assert "a wait that event 'a' has ended, and the code now asks for event 'b'" in task.error
    assert changing.give(task_id, "wait b").completed_at is None

    changing.asked = ASKS["wait a"]
    queue.retry(task_id)
    assert finish(queue, task_id).result == {"value": "wait a"}


def test_an_event_with_which_the_function_has_gone_on_is_given_again(queue: Face):
    name = ["a"]

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> str:
        found = await ctx.options(name="gate").wait(name[0], str)
        await ctx.sleep(60)
        return found

    task_id = workflow.submit()
    queue.process_batch()
    queue.emit("a", "came")
    queue.advance(1)
    queue.process_batch()
    name[:] = ["b"]

    assert finish(queue, task_id).result == {"value": "came"}


def test_an_open_question_becomes_the_one_that_is_asked_now(queue: Face, changing: Changing):
    task_id = changing.begin("ask")
    changing.asked = ASKS["ask again"]
    changing.wake(task_id)

    assert [each["question"] for each in changing.questions] == ["Delete everything?"]
    assert changing.give(task_id, "ask again").result == {"value": "ask again"}


def test_the_answer_to_another_question_is_none(queue: Face, changing: Changing):
    task_id = changing.begin("ask")
    changing.asked = ASKS["ask again"]
    task = changing.give(task_id, "ask")

    assert (task.waits_for or "").startswith("code ")
    assert (
        "the answer to 'Delete the copy?', and the code now asks for the answer to 'Delete everything?'" in task.error
    )


def test_a_wait_for_another_event_has_its_own_time(queue: Face, changing: Changing):
    def patient(event: str, seconds: float) -> Callable[[Any], Any]:
        return lambda ctx: ctx.options(name="gate").wait(event, str, timeout_seconds=seconds)

    changing.asked = patient("a", 60)
    task_id = changing.workflow.submit()
    changing.run()
    changing.asked = patient("b", 3600)
    queue.advance(60)
    changing.run()

    task = queue.read(task_id)
    assert (task.waits_for, task.due_at) == ("event b", queue.now + timedelta(seconds=3600))
    assert changing.give(task_id, "wait b").result == {"value": "wait b"}


@pytest.mark.parametrize("woken", [False, True])
def test_a_message_comes_to_the_wait_that_the_code_asks_for(queue: Face, changing: Changing, woken: bool):
    """Not to one of the same event that the old code has left open, nor stays it with that one."""
    task_id = changing.begin("wait a")
    changing.asked = lambda ctx: ctx.options(name="renamed").wait("a", str)
    if woken:
        assert changing.wake(task_id).waits_for == "event a"
    queue.emit("a", "message", to=task_id)
    changing.run()

    assert queue.read(task_id).result == {"value": "message"}


def test_a_message_that_an_earlier_run_has_had_does_not_come_again(queue: Face):
    old = [True]

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> str:
        first = await ctx.wait("a", str) if old else "none"
        await ctx.sleep(60)
        return first + await ctx.options(name="renamed").wait("a", str)

    task_id = workflow.submit()
    queue.process_batch()
    queue.emit("a", "one", to=task_id)
    queue.advance(1)
    queue.process_batch()
    old.clear()
    queue.advance(60)
    queue.process_batch()

    assert queue.read(task_id).waits_for == "event a"
    queue.emit("a", "two", to=task_id)
    assert finish(queue, task_id).result == {"value": "nonetwo"}
