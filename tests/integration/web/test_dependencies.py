"""FastAPI's own `Depends` in tasks: resolved per attempt, cleaned up after the function, refused where a request is
needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, Header, Query, Request, Security
from fastapi.security import OAuth2PasswordBearer

from tasklib import Backoff, InvalidArguments, Resource, TaskContext, TaskDefinitionError, TaskQueue

events: list[Any] = []


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    events.clear()
    with TaskQueue("sqlite:///:memory:") as queue:
        yield queue


def connection() -> Iterator[str]:
    events.append("open")
    try:
        yield "connection"
    except ValueError as error:
        events.append(f"rolled back: {error}")
        raise
    finally:
        events.append("close")


async def session(on: Annotated[str, Depends(connection)]) -> AsyncIterator[str]:
    events.append("begin")
    try:
        yield f"session on {on}"
    finally:
        events.append("end")


async def tenant(ctx: TaskContext) -> str:
    return str(ctx.headers.get("tenant", "nobody"))


def define(queue: TaskQueue, kind: str) -> Any:
    """The same task as a function, and as a coroutine function."""

    def body(number: int, first: str, second: str, who: str) -> str:
        events.append("run")
        if number < 0:
            raise ValueError(f"{number} is negative")
        return f"{first}, {second}, {who}"

    if kind == "def":

        @queue.task(name="both", max_retries=0)
        def both(
            number: int,
            first: Annotated[str, Depends(session)],
            second: Annotated[str, Depends(connection)],
            who: Annotated[str, Depends(tenant)],
        ) -> str:
            return body(number, first, second, who)

        return both

    @queue.task(name="both", max_retries=0)
    async def both_async(
        number: int, first: str = Depends(session), second: str = Depends(connection), who: str = Depends(tenant)
    ) -> str:
        return body(number, first, second, who)

    return both_async


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_nested_ones_are_called_once_per_attempt_and_cleaned_up_in_reverse(queue: TaskQueue, kind: str) -> None:
    both = define(queue, kind)
    task_id = both.options(headers={"tenant": "ada"}).submit(1)

    queue.process_batch()

    assert queue.wait(task_id).result == {"value": "session on connection, connection, ada"}
    assert events == ["open", "begin", "run", "end", "close"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_error_of_the_function_reaches_the_dependency(queue: TaskQueue, kind: str) -> None:
    task_id = define(queue, kind).submit(-1)

    queue.process_batch()

    task = queue.wait(task_id)
    assert (task.state, "ValueError: -1 is negative" in str(task.error)) == ("failed", True)
    assert events == ["open", "begin", "run", "end", "rolled back: -1 is negative", "close"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_clean_up_that_fails_is_a_failed_attempt(queue: TaskQueue, kind: str) -> None:
    """The commit of a session is often there."""

    def committing() -> Iterator[None]:
        yield
        raise RuntimeError("could not commit")

    if kind == "def":

        @queue.task(max_retries=0)
        def work(it: Annotated[None, Depends(committing)]) -> str:
            return "done"

    else:

        @queue.task(max_retries=0)
        async def work(it: Annotated[None, Depends(committing)]) -> str:
            return "done"

    task_id = work.submit()
    queue.process_batch()

    task = queue.wait(task_id)
    assert (task.state, "could not commit" in str(task.error)) == ("failed", True)


def test_a_dependency_that_swallows_the_error_does_not_make_a_success_of_it(queue: TaskQueue) -> None:
    def swallowing() -> Iterator[None]:
        with suppress(ValueError):
            yield

    @queue.task(max_retries=0)
    async def work(it: Annotated[None, Depends(swallowing)]) -> None:
        raise ValueError("swallowed")

    task_id = work.submit()
    queue.process_batch()

    assert "ValueError: swallowed" in str(queue.wait(task_id).error)


def test_without_the_cache_each_use_is_a_call(queue: TaskQueue) -> None:
    def number() -> int:
        events.append("called")
        return len(events)

    @queue.task
    def add(one: Annotated[int, Depends(number, use_cache=False)], two: int = Depends(number, use_cache=False)) -> int:
        return one + two

    task_id = add.submit()
    queue.process_batch()

    assert queue.wait(task_id).result == {"value": 3}


def test_each_attempt_has_its_own(queue: TaskQueue) -> None:
    @queue.task(max_retries=1, retry_policy=Backoff(base=0))
    def fails_once(it: Annotated[str, Depends(connection)], ctx: TaskContext) -> int:
        if ctx.attempt == 1:
            raise ValueError("once more")
        return ctx.attempt

    task_id = fails_once.submit()
    queue.process_batch()
    queue.process_batch()

    assert queue.wait(task_id).result == {"value": 2}
    assert events == ["open", "rolled back: once more", "close", "open", "close"]


def test_what_blocks_does_not_run_on_the_event_loop_and_what_awaits_does(queue: TaskQueue) -> None:
    def blocking() -> Iterator[int]:
        yield threading.get_ident()

    async def awaiting() -> int:
        return threading.get_ident()

    @queue.task
    async def on_the_loop(one: Annotated[int, Depends(blocking)], two: Annotated[int, Depends(awaiting)]) -> list[bool]:
        return [one == threading.get_ident(), two == threading.get_ident()]

    @queue.task
    def in_a_thread(one: Annotated[int, Depends(blocking)], two: Annotated[int, Depends(awaiting)]) -> list[bool]:
        return [one == threading.get_ident(), two == threading.get_ident()]

    ids = [on_the_loop.submit(), in_a_thread.submit()]
    queue.process_batch()

    assert [queue.wait(each).result for each in ids] == [{"value": [False, True]}, {"value": [True, False]}]


def test_classes_callable_objects_and_resources(queue: TaskQueue) -> None:
    class Clock:
        def __init__(self, zone: Annotated[str, Depends(lambda: "UTC")], step: int = 2) -> None:
            self.zone, self.step = zone, step

    class Prefix:
        def __init__(self, text: str) -> None:
            self.text = text

        def __call__(self, pool: Annotated[str, Resource()]) -> str:
            return self.text + pool

    @queue.on_startup
    def start(state: Any) -> None:
        state.pool = "pool"

    def handle(payload: dict[str, Any], clock: Annotated[Clock, Depends()], name: str = Depends(Prefix("the "))) -> str:
        return f"{payload['n']} {clock.zone} {clock.step} {name}"

    queue.register_handler("handled", handle)
    task_id = queue.enqueue("handled", {"n": 1})
    queue.process_batch()

    assert queue.wait(task_id).result == {"value": "1 UTC 2 the pool"}


async def test_a_cancelled_attempt_is_cleaned_up(queue: TaskQueue) -> None:
    reached = asyncio.Event()

    @queue.task
    async def endless(it: Annotated[str, Depends(session)]) -> None:
        reached.set()
        await asyncio.Event().wait()

    task_id = await endless.asubmit()
    worker = asyncio.create_task(queue.arun())
    await reached.wait()
    await queue.acancel(task_id)
    assert (await queue.await_(task_id)).state == "cancelled"
    assert events == ["open", "begin", "end", "close"]
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.parametrize("kind", [Request, BackgroundTasks])
def test_one_that_needs_the_request_is_refused_when_the_task_is_defined(queue: TaskQueue, kind: type) -> None:
    def of_the_request(it: kind) -> str: ...  # type: ignore[valid-type,empty-body]

    def outer(user: Annotated[str, Depends(of_the_request)]) -> str: ...  # type: ignore[empty-body]

    with pytest.raises(TaskDefinitionError, match=f"outer.*of_the_request.*needs {kind.__name__}") as refused:

        @queue.task
        def work(user: Annotated[str, Depends(outer)]) -> None: ...

    assert "submit what the task needs of the request as an argument" in str(refused.value)


def test_parts_of_a_request_are_refused_too(queue: TaskQueue) -> None:
    def page(number: Annotated[int, Query()] = 1) -> int: ...  # type: ignore[empty-body]
    def agent(user_agent: str = Header()) -> str: ...  # type: ignore[empty-body]
    def item(item_id: int) -> int: ...  # type: ignore[empty-body]

    for dependency, problem in [
        (page, "needs Query for 'number'"),
        (agent, "needs Header for 'user_agent'"),
        (item, "takes 'item_id' from a request"),
        (OAuth2PasswordBearer(tokenUrl="token"), "needs HTTPConnection|needs Request"),
    ]:
        with pytest.raises(TaskDefinitionError, match=problem):
            queue.task(name="work")(takes(Depends(dependency)))
    with pytest.raises(TaskDefinitionError, match=r"needs HTTPConnection|needs Request"):
        queue.task(name="work")(takes(Security(OAuth2PasswordBearer(tokenUrl="token"), scopes=["read"])))


def takes(mark: Any) -> Any:
    def work(it: Any = mark) -> None: ...

    return work


def test_one_that_depends_on_itself_is_refused(queue: TaskQueue) -> None:
    def circle(it: Any) -> None: ...

    circle.__annotations__["it"] = Annotated[Any, Depends(circle)]
    with pytest.raises(TaskDefinitionError, match="depends on itself"):
        queue.task(name="work")(takes(Depends(circle)))


def test_a_caller_cannot_give_it(queue: TaskQueue) -> None:
    @queue.task
    def work(number: int, it: Annotated[str, Depends(connection)]) -> None: ...

    with pytest.raises(InvalidArguments, match="'it' is filled in by the worker"):
        work.submit(1, it="mine")
    assert work(1, "mine") is None  # the plain function takes it as ever


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_in_a_child_process(sqlite_url: str, tmp_path: Path, kind: str) -> None:
    (tmp_path / "isolated.py").write_text(ISOLATED.format(url=sqlite_url, kind=kind))
    command = [sys.executable, "isolated.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)

    assert done.stdout.splitlines() == ["{'value': 'session on connection in a child'}", "closed"], done.stderr


ISOLATED = """
import os
from typing import Annotated
from fastapi import Depends
from tasklib import TaskQueue

queue = TaskQueue({url!r})

def connection():
    yield "connection"
    with open("closed.txt", "w") as file:
        file.write("closed")

async def session(on: Annotated[str, Depends(connection)]):
    yield "session on " + on

@queue.task(isolation="process")
{kind} work(parent: int, it: Annotated[str, Depends(session)]):
    return it + (" in a child" if os.getppid() == parent else "")

if __name__ == "__main__":
    task_id = work.submit(os.getpid())
    queue.process_batch()
    print(queue.wait(task_id).result)
    print(open("closed.txt").read())
"""
