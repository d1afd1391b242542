"""The decorated function as an object: its own names, and how it crosses to another process."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tasklib import TaskQueue
from tasklib.errors import TaskDefinitionError

queue = TaskQueue("sqlite:///:memory:")
duplicates = pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))],
    ids=["copy", "deep", "pickle"],
)


@queue.task
def add(a: int, b: int = 1) -> int:
    return a + b


twice = queue.task(name="twice")(lambda a: 2 * a)


@queue.task
async def aadd(a: int, b: int = 1) -> int:
    return a + b


class Kept:
    @staticmethod
    @queue.task(name="in_class")
    def inside(a: int) -> int:
        return a


def test_a_task_keeps_its_own_names_over_attributes_of_the_function():
    def greet(name: str) -> str:
        return name

    taken: Any = greet
    taken.submit, taken.name, taken.options, taken.function, taken.team = "a", "b", "c", "d", "media"
    task: Any = queue.task(greet)

    assert (task.name, task("Ada"), task.team) == ("greet", "Ada", "media")
    assert queue.get(task.options(priority=3).submit("Ada"))


def test_an_async_task_is_a_coroutine_function_and_what_wraps_it_is_not():
    is_coroutine_function = asyncio.iscoroutinefunction if sys.version_info < (3, 12) else inspect.iscoroutinefunction

    @functools.wraps(aadd)
    def blocking(a: int) -> int:
        return asyncio.run(aadd(a))

    assert [is_coroutine_function(each) for each in (aadd, add, blocking)] == [True, False, False]


def test_an_async_task_can_be_a_task_of_another_queue_too():
    with TaskQueue("sqlite:///:memory:") as other:
        task_id = other.task(aadd).submit(1, b=2)

        assert other.process_batch() == 1
        assert task_id.wait() == 3


@duplicates
@pytest.mark.parametrize("task", [add, twice, Kept.inside], ids=lambda task: task.name)
def test_a_task_is_copied_and_pickled_as_itself(task: Any, duplicate: Callable[[Any], Any]):
    assert duplicate(task) is task


@duplicates
def test_so_is_one_with_options(duplicate: Callable[[Any], Any]):
    task = queue.get(duplicate(add.options(priority=7)).submit(1))

    assert task is not None
    assert (task.name, task.priority) == ("add", 7)


def test_one_that_cannot_be_imported_says_so():
    @queue.task(name="local")
    def local() -> None: ...

    with pytest.raises(TaskDefinitionError, match=r"task 'local' cannot be pickled.*at the top of that module"):
        pickle.dumps(local)
