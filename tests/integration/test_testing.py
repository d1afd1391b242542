"""The kit for users' tests: a queue of its own for each, drained on demand, with a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import tasklib
from tasklib import TaskQueue
from tasklib.core.time.clock import ManualClock
from tasklib.errors import ConfigurationError
from tasklib.testing import TestTasks, isolated

pytest_plugins = ["pytester"]
queue = TaskQueue("postgresql://nobody@nowhere.invalid/production")
sent: list[str] = []
timing, heartbeat = queue.timing, queue.config.heartbeat_interval_seconds


@queue.task(max_retries=1, retry_on=(OSError,))
def send_email(to: str, at: datetime | None = None) -> str:
    sent.append(to)
    if to == "broken":
        raise OSError("no route")
    return f"sent to {to}"


@queue.task
def sign_up(name: str) -> None:
    send_email.submit(name)
    send_email.options(delay_seconds=3600).submit(f"{name}-later")


@queue.task
async def wait_long() -> None:
    await asyncio.sleep(3600)


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    sent.clear()


def test_a_queue_is_isolated_inside_the_block_and_as_before_after_it() -> None:
    before = queue.config, queue.clock, queue.database
    with isolated(queue) as tasks:
        assert (queue.config.is_sqlite, queue.clock) == (True, tasks.clock)
        send_email.submit("ada")
        assert tasks.drain() == 1
    with isolated(queue) as tasks:
        assert tasks.submitted() == []
    assert (queue.config, queue.clock, queue.database) == before


def test_draining_runs_what_tasks_submit_and_no_more_than_is_due() -> None:
    with isolated(queue) as tasks:
        sign_up.submit("ada")
        assert (tasks.drain(), sent) == (2, ["ada"])
        tasks.clock.advance(hours=1)
        assert (tasks.drain(), sent) == (1, ["ada", "ada-later"])


def test_draining_can_move_the_clock_to_delays_and_retries() -> None:
    with isolated(queue) as tasks:
        start = tasks.clock.now()
        send_email.options(delay_seconds=60).submit("broken")
        assert tasks.drain(advance=True) == 2
        assert (tasks.clock.now() - start).total_seconds() == 65
        [task] = tasks.submitted(send_email)
        assert task.state == "failed"


def test_a_worker_lives_through_days_of_delays_and_retries_at_their_exact_moments() -> None:
    midnight = datetime(2030, 1, 1, tzinfo=UTC)
    with isolated(queue, clock=ManualClock(midnight)) as tasks:
        send_email.options(delay_seconds=86_400).submit("broken")
        tasks.work(days=2, hours=1)
        [task] = tasks.submitted(send_email)
        assert [each.started_at for each in task.history] == [
            midnight + timedelta(days=1),
            midnight + timedelta(days=1, seconds=5),
        ]
        assert tasks.clock.now() == midnight + timedelta(days=2, hours=1)
        assert (queue.timing, queue.config.heartbeat_interval_seconds) == (timing, heartbeat)


def test_a_coroutine_acts_beside_a_worker_and_its_result_or_error_comes_back() -> None:
    async def scenario() -> tuple[str, float]:
        began = asyncio.get_running_loop().time()
        task_id = await send_email.asubmit("ada")
        await asyncio.sleep(3600)
        task = await queue.await_(task_id, timeout=180)
        return task.state, asyncio.get_running_loop().time() - began

    async def failing() -> None:
        raise ValueError("in the scenario")

    with isolated(queue) as tasks:
        assert tasks.run(scenario()) == ("completed", 3600)
        with pytest.raises(ValueError, match="in the scenario"):
            tasks.run(failing())


async def test_virtual_time_passes_inside_a_running_event_loop_too() -> None:
    with isolated(queue, inline=True) as tasks:
        send_email.options(delay_seconds=60).submit("ada")
        tasks.work(minutes=1, seconds=1)
        assert sent == ["ada"]


def test_what_still_runs_at_the_end_is_given_back() -> None:
    with isolated(queue) as tasks:
        wait_long.submit()
        tasks.work(60)
        [task] = tasks.submitted(wait_long)
        assert (task.state, task.attempts) == ("pending", 0)
        tasks.work(hours=2)
        assert queue.get(task.id).state == "completed"  # type: ignore[union-attr]


def test_time_cannot_be_moved_for_a_worker_on_a_server() -> None:
    with isolated(queue) as tasks:
        queue.config = queue.config.with_(database_url="postgresql://nobody@nowhere.invalid/test")
        with pytest.raises(ConfigurationError, match="on SQLite only"):
            tasks.work(1)


def test_what_was_submitted_is_found_by_some_of_its_arguments() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    with isolated(queue) as tasks:
        send_email.submit("ada", at=moment)
        send_email.submit("bob")
        [task] = tasks.assert_submitted(send_email, to="ada")
        assert task.kwargs["to"] == "ada"
        tasks.assert_submitted(send_email, at=moment)
        tasks.assert_submitted("send_email", times=2)
        tasks.assert_submitted(send_email, {"to": "bob"}, times=1)
        tasks.assert_not_submitted(sign_up)
        with pytest.raises(AssertionError, match=r"(?s)send_email was submitted never with .*'eve'.*'ada'.*'bob'"):
            tasks.assert_submitted(send_email, to="eve")
        with pytest.raises(AssertionError, match="2 times instead of 3 times"):
            tasks.assert_submitted(send_email, times=3)
        with pytest.raises(AssertionError, match="1 times instead of 0 times"):
            tasks.assert_not_submitted(send_email, to="ada")


def test_inline_tasks_have_run_when_their_submission_returns() -> None:
    with isolated(queue, inline=True):
        task_id = sign_up.submit("ada")
        assert sent == ["ada"]
        assert queue.get(task_id).state == "completed"  # type: ignore[union-attr]
        send_email.submit_many([{"to": "bob"}, {"to": "eve"}])
        assert sorted(sent) == ["ada", "bob", "eve"]


def test_inline_tasks_of_asynchronous_code() -> None:
    async def program() -> None:
        await asyncio.gather(send_email.asubmit("ada"), send_email.asubmit("bob"))
        assert sorted(sent) == ["ada", "bob"]

    with isolated(queue, inline=True):
        asyncio.run(program())


def test_a_task_that_never_ends_is_told() -> None:
    with isolated(queue) as tasks:

        @queue.task(name="again")
        def again() -> None:
            queue.enqueue("again")

        again.submit()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tasklib.testing.MOST_TASKS", 5)
            with pytest.raises(AssertionError, match="submit itself again"):
                tasks.drain()


def test_the_fixture_isolates_any_queue(isolate_queue: Callable[..., TestTasks]) -> None:
    tasks = isolate_queue(queue, inline=True)
    send_email.submit("ada")
    assert sent == ["ada"]
    tasks.assert_submitted(send_email, times=1)


def test_the_fixture_isolates_the_default_queue(tasklib_tasks: TestTasks) -> None:
    @tasklib.task(name="testing.hello")
    def hello(name: str) -> str:
        return f"hello {name}"

    task_id = hello.submit("ada")
    assert tasklib_tasks.drain() == 1
    assert tasklib.get_task(task_id).result == {"value": "hello ada"}  # type: ignore[union-attr]


PROGRAM = """
import os
import tasklib
from tasklib import TaskQueue

queue = TaskQueue("sqlite:///real.db")
tasklib.init()

def settings_queue():
    return TaskQueue(os.environ["DATABASE_URL"])

def dotenv_queue():
    with open(".env") as file:
        return TaskQueue(file.read().partition("=")[2].strip().strip('"'))

URL = "sqlite:///real.db"

def lazy_queue(url=None):
    return TaskQueue(url or URL)

class App:
    def __init__(self, settings):
        self.queue = TaskQueue(settings["database"])

    @classmethod
    def of_variable(cls):
        return cls({"database": os.environ["OTHER_URL"]})
"""
LAZY = """
from tasklib import TaskQueue

queue = TaskQueue("sqlite:///real.db")
"""
FORGETFUL = """
import pytest, tasklib
from tasklib import Config, ConfigurationError, TaskQueue
from tasklib.testing import isolated
import program

@pytest.mark.parametrize("make", [
    lambda: program.queue, tasklib.default_queue, TaskQueue, program.settings_queue, program.dotenv_queue,
    program.lazy_queue, lambda: __import__("lazily_imported").queue,
])
async def test_forgot_the_fixture(make):
    queue = make()
    with pytest.raises(ConfigurationError, match="program's own database .*tasklib_tasks .* isolate_queue"):
        queue.enqueue("job")
    with pytest.raises(ConfigurationError, match="program's own database"):
        await queue.aenqueue("job")
    with pytest.raises(ConfigurationError, match="program's own database"):
        queue.migrate()
    queue.close()

def test_with_the_fixture(isolate_queue, tasklib_tasks):
    isolate_queue(program.queue)
    program.queue.enqueue("job")
    tasklib.default_queue().enqueue("job")
    tasklib_tasks.assert_submitted("job", times=1)

def test_with_a_database_of_its_own(tmp_path, monkeypatch):
    with TaskQueue(f"sqlite:///{tmp_path}/own.db") as queue:
        queue.enqueue("job")
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/other.db")
    with TaskQueue() as queue:
        queue.enqueue("job")

def test_whose_program_is_given_another_database(tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_URL", "sqlite:///of_variable.db")
    monkeypatch.setattr(program, "URL", f"sqlite:///{tmp_path}/patched.db")
    made = [
        program.lazy_queue(),
        program.App.of_variable().queue,
        program.lazy_queue("sqlite:///given.db"),
        program.lazy_queue(Config(database_url="sqlite:///given.db")),
        program.App({"database": "sqlite:///given.db"}).queue,
    ]
    for queue in made:
        with queue:
            queue.enqueue("job")
"""
MARKED = """
import pytest, program

@pytest.mark.tasklib_database
def test_means_it():
    program.queue.enqueue("job")
"""


def test_a_test_that_forgot_the_fixture_never_reaches_the_program_s_own_database(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the program has its queue from; a test that is marked does, and with `allow` all of them do."""
    monkeypatch.setenv("DATABASE_URL", "sqlite:///shared.db")
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    (pytester.path / ".env").write_text('APP_DATABASE="sqlite:///of_dotenv.db"\n')
    pytester.makepyfile(program=PROGRAM, test_forgetful=FORGETFUL, test_marked=MARKED, lazily_imported=LAZY)

    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=11)
    assert not [*pytester.path.glob("shared.db"), *pytester.path.glob("of_dotenv.db")]
    with TaskQueue(f"sqlite:///{pytester.path}/real.db") as real:
        assert real.count() == 1  # of the test that means it

    allowed = ("-o", "tasklib_database=allow", "-k", "forgot")
    pytester.runpytest_subprocess("-p", "no:randomly", *allowed).assert_outcomes(failed=7, deselected=4)
