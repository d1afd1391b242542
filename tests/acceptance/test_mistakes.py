"""What newcomers get wrong, and what they are told: the value, the reason and the remedy, and nothing half done."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import tasklib
from tasklib import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidArguments,
    InvalidTaskId,
    TaskDefinitionError,
    TaskNotFound,
    TaskQueue,
)
from tasklib.queue import default as default_module
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
async def test_arguments_by_position_are_not_taken_for_a_delay() -> None:
    @tasklib.task
    def wait_for(seconds: int = 1) -> None: ...

    submit: Any = tasklib.submit_task  # a type checker refuses it, too
    for value in (5, "ada"):
        with pytest.raises(ConfigurationError, match=rf"by name, got {value!r} by position; write .*asubmit"):
            await submit(wait_for, value)
    assert tasklib.default_queue().count() == 0


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


# Ids


@pytest.mark.parametrize("given, said", [("abc", "got 'abc'"), (None, "got None"), (17, "got 17")], ids=repr)
def test_what_cannot_be_an_id_is_said_and_is_not_taken_for_a_task_that_is_gone(
    given: Any, said: str, queue: TaskQueue
) -> None:
    for ask in (queue.get, queue.wait, queue.retry, queue.cancel, queue.delete, queue.explain):
        with pytest.raises(InvalidTaskId, match=f"is a UUID, as submit.* returns it; {said}") as caught:
            ask(given)
        assert isinstance(caught.value, TaskNotFound)  # as for an id that no task has

    assert queue.get(uuid4()) is None
    assert queue.get(str(uuid4())) is None


@pytest.mark.usefixtures("default_queue")
async def test_a_forgotten_await_is_said() -> None:
    @tasklib.task
    def notify(who: str) -> None: ...

    with pytest.raises(InvalidTaskId, match=r"`await` is missing, as in task_id = await submit_task\(\.\.\.\)"):
        tasklib.get_task(tasklib.submit_task(notify, who="ada"))  # type: ignore[arg-type]
    with pytest.raises(InvalidTaskId, match=r"await asubmit"):
        await tasklib.default_queue().aget(notify.asubmit("ada"))  # type: ignore[arg-type]

    task_id = await tasklib.submit_task(notify, who="ada")
    with pytest.raises(ConfigurationError, match="timeout is a number of seconds"):
        await task_id.await_(timeout="5")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="on_end takes a function"):
        tasklib.default_queue().on_end(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"write class Mine\(Middleware\)"):
        tasklib.default_queue().add_middleware(lambda call: call())  # type: ignore[arg-type]
    stored = tasklib.get_task(task_id)
    with pytest.raises(InvalidTaskId, match=r"got a Task: write task\.id"):
        tasklib.get_task(stored)  # type: ignore[arg-type]


def test_a_source_of_headers_that_returns_none_is_named(queue: TaskQueue) -> None:
    @queue.add_headers
    def tenant() -> Any:
        return None

    with pytest.raises(ConfigurationError, match=r"tenant.* must return a mapping .*got None; return \{\} for none"):
        queue.enqueue("job")
    assert queue.count() == 0


def test_an_empty_name_and_a_limit_that_is_no_number_are_refused(queue: TaskQueue) -> None:
    with pytest.raises(ConfigurationError, match=r"a task's name must be a string .*got ''"):

        @queue.task(name="")
        def job() -> None: ...

    for limit in (-1, True, "3"):
        with pytest.raises(ConfigurationError, match="limit must be a whole number, 0 or more, got "):
            queue.process_batch(limit)  # type: ignore[arg-type]


# What other task queues call it


def test_a_wait_that_would_block_its_own_worker_is_refused(queue: TaskQueue) -> None:
    @queue.task
    def other() -> None: ...

    @queue.task(max_retries=0)
    async def impatient() -> None:
        other.submit().wait()

    task_id = impatient.submit()
    queue.process_batch()

    assert "wait() blocks, and here it would block the event loop on which a worker runs" in str(
        queue.get(task_id).error
    )
    queue.process_batch()
    assert queue.worker_loops == []


def test_methods_of_other_task_queues_are_answered_with_what_to_write(queue: TaskQueue) -> None:
    @queue.task
    def notify(who: str) -> None: ...

    foreign: Any = notify
    with pytest.raises(AttributeError, match=r"no 'delay' here; write notify\.submit\(\.\.\.\)"):
        foreign.delay("ada")
    with pytest.raises(AttributeError, match=r"write notify\.submit\(\.\.\.\), with options \.options\("):
        foreign.apply_async(("ada",), countdown=5)
    with pytest.raises(AttributeError, match="task 'notify' has no attribute 'colour'"):
        _ = foreign.colour
    assert not hasattr(notify, "delay")


def test_an_option_among_the_arguments_is_answered_with_where_it_belongs(queue: TaskQueue) -> None:
    @queue.task
    def notify(who: str) -> None: ...

    @queue.task
    def anything(**names: int) -> None: ...

    foreign: Any = notify
    with pytest.raises(InvalidArguments, match=r"apart from the arguments: notify\.options\(priority=\.\.\.\)\.submit"):
        foreign.submit("ada", priority=3)
    with pytest.raises(InvalidArguments, match=r"notify\.options\(delay_seconds=\.\.\., tags=\.\.\.\)\.submit"):
        foreign.submit("ada", countdown=3, tags={})
    with pytest.raises(ConfigurationError, match="countdown is called delay_seconds here"):
        foreign.options(countdown=3)
    assert queue.count() == 0

    found = queue.get(anything.submit(priority=3))
    assert found is not None
    assert found.kwargs == {"priority": 3}


def test_a_task_where_its_name_is_wanted_is_answered_with_the_name(queue: TaskQueue) -> None:
    @queue.task
    def notify(who: str) -> None: ...

    foreign: Any = notify
    wrong = [
        lambda: queue.pause(foreign),
        lambda: queue.resume(foreign),
        lambda: queue.is_paused(foreign),
        lambda: queue.set_rate_limit(1, foreign),
        lambda: queue.get_rate_limit(foreign),
        lambda: queue.set_concurrency_limit(1, foreign),
        lambda: queue.enqueue(foreign, {"who": "ada"}),
        lambda: queue.add_schedule("hourly", task=foreign, every=3600),
    ]
    for call in wrong:
        with pytest.raises(ConfigurationError, match="write 'notify'"):
            call()
    assert (queue.pauses(), queue.limits(), queue.schedules(), queue.count()) == ([], [], [], 0)


def test_names_of_the_service_are_answered_with_those_of_python(queue: TaskQueue) -> None:
    @queue.task
    def notify(who: str) -> None: ...

    foreign: Any = queue
    with pytest.raises(ConfigurationError, match="status is called state here; the filters are state, name, "):
        foreign.list(status="failed")
    with pytest.raises(ConfigurationError, match="max_attempts is called max_retries here, which counts those after"):
        notify.options(max_attempts=3)


@pytest.mark.usefixtures("default_queue")
def test_help_shows_the_real_options_with_their_defaults() -> None:
    tasklib.task(print_nothing)
    _, options = tasklib.get_registered_tasks()["print_nothing"]
    real = {each.name: getattr(options, each.name) for each in fields(options)}

    for shown in (tasklib.task, TaskQueue.task, TaskQueue("sqlite:///:memory:").task):
        parameters = dict(inspect.signature(shown).parameters)
        first = [parameters.pop(name, None) for name in ("self", "function", "name", "context")]
        assert all(first[1:])
        assert {name: each.default for name, each in parameters.items()} == real


def print_nothing() -> None: ...


# Values that JSON has no form for


def test_bytes_that_are_not_text_are_refused_with_the_remedy(queue: TaskQueue) -> None:
    @queue.task
    def keep(data: bytes) -> None: ...

    @queue.task
    def keep_anything(data): ...  # type: ignore[no-untyped-def]

    for submit in (keep.submit, keep_anything.submit, lambda data: queue.enqueue("by name", {"data": data})):
        with pytest.raises(
            InvalidArguments, match=r"'data': .*not UTF-8 text.*; pass base64\.b64encode\(data\)\.decode"
        ):
            submit(b"\xff\x00")
    assert queue.count() == 0


# Two functions of one name

NOTIFY = """
@task
def notify(who: str) -> str:
    return "first"
"""


@pytest.mark.usefixtures("default_queue")
def test_two_functions_of_one_name_in_one_module_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "defined_twice.py").write_text("from tasklib import task\n" + NOTIFY + NOTIFY)

    with pytest.raises(TaskDefinitionError, match=r"'notify': .*defined_twice\.py:3\) and .*defined_twice\.py:7\)"):
        importlib.import_module("defined_twice")
    with pytest.raises(TaskDefinitionError, match="two tasks are named 'notify'"):
        exec(NOTIFY + NOTIFY, {"task": TaskQueue("sqlite:///:memory:").task, "__name__": "__main__"})


DECORATED = """
def timed(function):
    def wrapper(**arguments):
        return function(**arguments)
    return wrapper

def passing(function):
    def wrapper(*args, **arguments):
        return function(*args, **arguments)
    return wrapper
"""


def test_functions_behind_a_decorator_that_hides_them_are_refused(queue: TaskQueue) -> None:
    cell: dict[str, Any] = {"task": queue.task, "__name__": "__main__"}
    exec(DECORATED, cell)
    for _ in range(2):  # a cell that runs again
        exec("@task\n@timed\ndef charge(): ...", cell)

    with pytest.raises(TaskDefinitionError, match=r"'wrapper': .* wraps both charge and refund; put @functools\.wraps"):
        exec("@task\n@timed\ndef refund(): ...", cell)
    with pytest.raises(TaskDefinitionError, match=r"if it wraps refund, put @functools\.wraps"):
        exec("@task\n@passing\ndef refund(): ...", cell)


@pytest.mark.usefixtures("default_queue")
def test_a_module_loaded_again_and_a_cell_run_again_replace_their_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source = tmp_path / "loaded_again.py"
    source.write_text("from tasklib import task\n" + NOTIFY)
    module = importlib.import_module("loaded_again")
    source.write_text("from tasklib import task\n\n# a line more\n" + NOTIFY.replace("first", "later"))

    task_id = importlib.reload(module).notify.submit("ada")
    tasklib.default_queue().process_batch()

    done = tasklib.get_task(task_id)
    assert done is not None
    assert done.result == {"value": "later"}

    cell: dict[str, Any] = {"task": TaskQueue("sqlite:///:memory:").task, "__name__": "__main__"}
    exec(NOTIFY, cell)
    exec("\n\n" + NOTIFY.replace("first", "edited"), cell)
    assert cell["notify"]("ada") == "edited"
