"""What newcomers get wrong, and what they are told: the value, the reason and the remedy, and nothing half done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import tasklib
from tasklib import ConfigurationError, DatabaseUnavailable, InvalidArguments, TaskQueue
from tasklib import default as default_module
from tasklib.submission import CHUNK


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as made:
        yield made


@pytest.fixture
def default_queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A default queue that no other test has touched."""
    monkeypatch.setattr(default_module, "_default", default_module._Default())
    tasklib.init("sqlite:///:memory:")
    yield
    tasklib.default_queue().close()


def rows(good: int) -> Iterator[dict[str, Any]]:
    yield from ({"n": number} for number in range(good))
    yield {"n": "bad"}


async def arows(good: int) -> AsyncIterator[dict[str, Any]]:
    for row in rows(good):
        yield row


def test_a_bad_row_of_many_is_named_and_nothing_was_stored(queue: TaskQueue) -> None:
    @queue.task
    def count(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match=r"row 4: 'n': .* \(got 'bad'\); nothing was stored") as caught:
        count.submit_many(rows(3))

    assert (caught.value.kept, queue.count()) == (0, 0)


async def test_a_bad_row_far_behind_says_how_many_were_stored_before_it(database_url: str) -> None:
    async with TaskQueue(database_url) as queue:

        @queue.task
        def count(n: int) -> None: ...

        message = rf"row {CHUNK + 11:,}: .*; the first {CHUNK:,} tasks were stored before"
        with pytest.raises(InvalidArguments, match=message) as caught:
            await count.asubmit_many(arows(CHUNK + 10))

        assert (caught.value.kept, await queue.acount()) == (CHUNK, CHUNK)


@pytest.mark.usefixtures("default_queue")
async def test_an_option_that_is_also_a_parameter_is_not_guessed() -> None:
    @tasklib.task
    def notify(who: str, priority: int = 0) -> None: ...

    with pytest.raises(ConfigurationError, match=r"notify\.options\(priority=\.\.\.\)\.asubmit\(priority=\.\.\.\)"):
        await tasklib.submit_task(notify, who="ada", priority=5)

    assert tasklib.get_task(await tasklib.submit_task(notify, who="ada")) is not None


@pytest.mark.parametrize("age", ["30d", -5, None], ids=repr)
def test_a_clean_up_of_no_age_is_refused(age: Any, queue: TaskQueue) -> None:
    with pytest.raises(ConfigurationError, match="a number of seconds or a timedelta"):
        queue.cleanup(older_than=age)


def test_an_unreachable_server_is_told_in_one_line_without_the_password() -> None:
    queue = TaskQueue("postgresql://ada:secret@127.0.0.1:1/app")

    with pytest.raises(DatabaseUnavailable) as caught:
        queue.count()

    message = str(caught.value)
    assert "\n" not in message
    assert "secret" not in message
    assert "check the URL" in message
