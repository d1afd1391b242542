"""Limits that a task's code declares: stored when a worker starts, and changed at run time by people."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tasklib import ConfigurationError, TaskQueue
from tests.fixtures.queues import Face

NOTHING = None, None, None


def declare(queue: TaskQueue, **limits: Any) -> None:
    """Define the task anew, as a new version of the program would, and let a worker start."""
    queue.registry.remove("mail")

    @queue.task(name="mail", **limits)
    def mail() -> None: ...

    queue.process_batch()


def stored(queue: TaskQueue) -> tuple[float | None, float | None, int | None]:
    """Rate, burst and tasks at once."""
    return next(((each.rate, each.burst, each.max_running) for each in queue.limits() if each.name == "mail"), NOTHING)


def test_a_worker_stores_what_its_tasks_declare(queue: Face) -> None:
    declare(queue.plain, rate=5, burst=10, max_running=3)

    (limit,) = queue.limits()
    assert (limit.name, limit.rate, limit.burst, limit.max_running) == ("mail", 5, 10, 3)
    assert (limit.tokens, limit.is_declared("rate"), limit.is_declared("max_running")) == (10, True, True)


@pytest.mark.parametrize("limit", ["max_running", "max_concurrency"])
def test_rows_of_a_former_name_are_under_the_limits_too(queue: Face, limit: str) -> None:
    running, most = 0, 0

    @queue.plain.task(name="mail", aliases=("post",), **{limit: 1})
    async def mail() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    for _ in range(3):
        queue.enqueue("post")

    while queue.plain.process_batch():
        pass
    assert (most, queue.count(state="completed")) == (1, 3)


def test_tasks_without_a_declaration_have_no_limit(queue: Face) -> None:
    declare(queue.plain, max_concurrency=2)

    assert queue.limits() == []
    assert queue.sql("SELECT name FROM tasklib_controls") == []


def test_a_declared_rate_holds_with_its_burst(queue: Face) -> None:
    declare(queue.plain, rate=2, burst=3)
    for _ in range(8):
        queue.enqueue("mail")

    assert queue.plain.process_batch() == 3
    assert queue.plain.process_batch() == 0
    queue.advance(1)
    assert queue.plain.process_batch() == 2
    queue.advance(100)
    assert queue.plain.process_batch() == 3


def test_explain_knows_a_declared_limit(queue: Face) -> None:
    declare(queue.plain, rate=1)
    queue.worker("mail")
    first, second = queue.enqueue("mail"), queue.enqueue("mail")
    assert queue.plain.process_batch() == 1

    assert queue.read(first).state == "completed"
    assert "rate_limit" in [reason.code for reason in queue.explain(second).reasons]


def test_what_a_person_sets_holds_until_the_declaration_changes(queue: Face) -> None:
    declare(queue.plain, rate=5, max_running=3)
    queue.set_rate_limit(9, "mail")
    queue.set_concurrency_limit(0, "mail")

    declare(queue.plain, rate=5, max_running=3)
    assert stored(queue.plain) == (9, None, None)
    (limit,) = queue.limits()
    assert (limit.is_declared("rate"), limit.declared) == (False, {"rate": 5, "max_running": 3})

    declare(queue.plain, rate=5, max_running=4)
    assert stored(queue.plain) == (5, None, 4)


def test_a_declaration_that_is_gone_takes_its_limits_with_it(queue: Face) -> None:
    declare(queue.plain, rate=5, max_running=3)
    declare(queue.plain)
    assert stored(queue.plain) == NOTHING

    queue.set_rate_limit(2, "mail")
    declare(queue.plain)
    assert stored(queue.plain) == (2, None, None)


def test_a_declaration_leaves_a_pause_alone(queue: Face) -> None:
    queue.pause("mail")
    declare(queue.plain, rate=5)
    assert queue.is_paused("mail")


def test_a_burst_can_be_set_at_run_time(queue: Face) -> None:
    queue.plain.set_rate_limit(1, "mail", burst=4)
    assert stored(queue.plain) == (1, 4, None)
    queue.plain.set_rate_limit(1, "mail")
    assert stored(queue.plain) == (1, None, None)
    for burst, rate in ((0.5, 1), (4, 0), (True, 1)):
        with pytest.raises(ConfigurationError, match="burst"):
            queue.plain.set_rate_limit(rate, "mail", burst=burst)


def keys(queue: Face) -> list[str | None]:
    return [task.concurrency_key for task in reversed(queue.list())]


def test_a_key_is_made_of_arguments_and_tags(queue: Face) -> None:
    @queue.plain.task(name="mail", concurrency_key="{tenant}/{n}/{region}")
    def mail(tenant: str, n: int = 0) -> None: ...

    mail.options(tags={"region": "eu"}).submit("ada", 1)
    mail.options(tags={"region": "eu", "tenant": "tagged"}).submit("ada", n=2)
    mail.options(tags={"region": "eu"}, concurrency_key="own").submit("ada", 3)
    queue.enqueue("mail", {"tenant": "bob", "n": 4}, tags={"region": "us"})
    mail.options(tags={"region": "eu"}).submit_many([{"tenant": "cy", "n": 5}, {"tenant": "di", "n": 6}])

    assert keys(queue) == ["ada/1/eu", "tagged/2/eu", "own", "bob/4/us", "cy/5/eu", "di/6/eu"]


@pytest.mark.parametrize("given", [{"tenant": ""}, {"tenant": None}, {"tenant": ["a"]}, {}])
def test_a_task_without_what_its_key_is_made_of_is_stored_with_a_warning(queue: Face, given: dict[str, Any]) -> None:
    @queue.plain.task(name="mail", concurrency_key="{tenant}")
    def mail(tenant: Any = None) -> None: ...

    with pytest.warns(RuntimeWarning, match="'mail' is stored without its concurrency key.*tenant is given neither"):
        mail.submit(**given)
    assert keys(queue) == [None]


@pytest.mark.parametrize(
    "limits",
    [{"rate": 0}, {"rate": True}, {"rate": 5, "burst": 0.5}, {"burst": 5}, {"max_running": 0}, {"max_running": 1.5}],
)
def test_limits_that_cannot_be_are_refused_where_they_are_declared(queue: Face, limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"task 'mail': (rate|burst|max_running)"):
        queue.plain.task(name="mail", **limits)(lambda: None)
