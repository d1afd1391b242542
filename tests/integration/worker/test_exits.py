"""A task that leaves by an exception that is no `Exception` fails, wherever it runs; its worker goes on.

`sys.exit()`, a CancelledError that nobody of the worker's asked for, a KeyboardInterrupt that is not Ctrl-C.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklib import Config, Middleware, TaskContext, TaskQueue, TaskState
from tasklib.errors import ExecutionError
from tests.fixtures import python
from tests.programs.processes import working


class Unusual(BaseException):
    """Not caught by `except Exception`."""


class Mute(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class Unshowable(Exception):
    """Raises what is no `Exception` when Python makes its traceback."""

    @property
    def __notes__(self) -> list[str]:
        raise Unusual("no notes")


RAISED = [
    SystemExit(3),
    Unusual("strange"),
    asyncio.CancelledError("by nobody"),
    KeyboardInterrupt("by code"),
    GeneratorExit("early"),
    StopIteration("the end"),
    BaseExceptionGroup("several", [KeyboardInterrupt(), asyncio.CancelledError()]),
    Mute(),
]


def again(raised: BaseException) -> BaseException:
    """Another one of the kind, without the traceback that this one has from elsewhere."""
    return type(raised)(*raised.args)


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with TaskQueue(Config(database_url="sqlite:///:memory:", max_retries=0)) as queue:
        yield queue


def states(queue: TaskQueue, *names: str) -> list[tuple[str | None, str | None, str]]:
    """How tasks of these names end in one worker: name, state and error."""
    ids = [queue.enqueue(name, max_attempts=1) for name in names]
    queue.process_batch()
    ended = [queue.get(task_id) for task_id in ids]
    return [(task.name, task.state.value, task.error or "") for task in ended if task is not None]


def test_hooks_that_raise_what_cannot_be_shown_are_logged(queue: TaskQueue, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*given: object) -> None:
        raise Unshowable

    queue.add_middleware(type("Broken", (Middleware,), {"failed": broken})())
    queue.on_error(broken)
    queue.on_end(broken)
    queue.register_handler("fails", lambda payload: 1 / 0)

    ((_, state, _),) = states(queue, "fails")

    assert state == "failed"
    assert caplog.text.count("Unshowable: (it cannot be shown: Unusual)") == 3


@pytest.mark.parametrize("raised", [*RAISED, Unshowable()], ids=lambda raised: type(raised).__name__)
def test_it_fails_alone_wherever_it_runs(queue: TaskQueue, raised: BaseException) -> None:
    @queue.task
    async def at_once() -> None:
        raise again(raised)

    @queue.task
    async def later() -> None:
        await asyncio.sleep(0)
        raise again(raised)

    @queue.task
    def thread() -> None:
        raise again(raised)

    @queue.task(transactional=True)
    async def transaction() -> None:
        await asyncio.sleep(0)
        raise again(raised)

    @queue.task(transactional=True)
    def transaction_in_a_thread() -> None:
        raise again(raised)

    @queue.task
    async def innocent() -> None:
        await asyncio.sleep(0)

    places = ["at_once", "later", "thread", "transaction", "transaction_in_a_thread"]
    ended = states(queue, "innocent", *places, "innocent")

    assert [(name, state) for name, state, _ in ended] == [
        ("innocent", "completed"),
        *((name, "failed") for name in places),
        ("innocent", "completed"),
    ]
    assert all(type(raised).__name__ in error and "raise again" in error for _, _, error in ended if error)


def test_the_code_of_an_exit_is_in_the_error(queue: TaskQueue) -> None:
    @queue.task
    def leave() -> None:
        sys.exit("no such file")

    ((_, _, error),) = states(queue, "leave")
    assert error.endswith("SystemExit: no such file")


def test_awaiting_something_that_was_cancelled_is_a_failure_and_can_be_retried(queue: TaskQueue) -> None:
    @queue.task(max_retries=1, retry_policy=lambda attempt, error: 3600)
    async def awaits_a_task() -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other

    @queue.task(max_retries=0)
    async def awaits_a_future() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        await future

    @queue.task(max_retries=0)
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    @queue.task(max_retries=0)
    async def innocent() -> None:
        await asyncio.sleep(0)

    ids = [task.submit() for task in (awaits_a_task, awaits_a_future, cancels_itself, innocent)]
    queue.process_batch()

    ended = [queue.get(task_id) for task_id in ids]
    assert [(task.state.value, task.next_retry_at is not None) for task in ended if task] == [
        ("failed", True),
        ("failed", False),
        ("failed", False),
        ("completed", False),
    ]


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
def test_hooks_and_policies_that_raise_it_lose_no_ending(queue: TaskQueue, raised: BaseException) -> None:
    class Strict(Middleware):
        def before(self, ctx: TaskContext) -> None:
            if ctx.task.name == "refused":
                raise again(raised)

        def failed(self, ctx: TaskContext, error: BaseException) -> None:
            raise again(raised)

    def policy(attempt: int, error: BaseException) -> float:
        raise again(raised)

    queue.add_middleware(Strict())

    @queue.on_error
    def report(ctx: TaskContext, error: BaseException) -> None:
        raise again(raised)

    @queue.task
    async def refused() -> None: ...

    @queue.task(max_retries=1, retry_policy=policy)
    def broken() -> None:
        raise ValueError("no")

    @queue.task
    async def innocent() -> None: ...

    ids = [queue.enqueue("refused", max_attempts=1), broken.submit(), innocent.submit()]
    queue.process_batch()

    ended = [queue.get(task_id) for task_id in ids]
    assert [task.state.value for task in ended if task] == ["failed", "failed", "completed"]
    assert ended[1]
    assert "\n(its retry policy failed too: " in (ended[1].error or "")


def test_a_worker_that_met_one_in_a_thread_stops_in_order(queue: TaskQueue) -> None:
    @queue.task(max_retries=0)
    def interrupted() -> None:
        raise KeyboardInterrupt

    with working(queue):
        task = queue.wait(interrupted.submit(), timeout=180)

    assert task.state is TaskState.FAILED


def test_a_program_that_ends_around_its_worker_spends_no_attempt(tmp_path: Path) -> None:
    queue = TaskQueue(Config(database_url=f"sqlite:///{tmp_path}/tasks.db", max_retries=0))
    begun: list[asyncio.Event] = []

    @queue.task
    async def endless() -> None:
        begun[0].set()
        await asyncio.sleep(3600)

    async def program() -> None:
        begun.append(asyncio.Event())
        worker = asyncio.create_task(queue.arun(grace_seconds=0))
        await begun[0].wait()
        assert not worker.done()

    task_id = endless.submit()
    asyncio.run(program())

    task = queue.get(task_id)
    assert task is not None
    assert (task.state.value, task.attempts, task.error) == ("pending", 0, None)
    queue.close()


async def test_a_start_up_hook_that_lets_one_escape_is_named(queue: TaskQueue) -> None:
    @queue.on_startup
    async def connect() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ExecutionError, match=r"the hook .*connect let a CancelledError of its own escape"):
        await queue.aprocess_batch()


CTRL_C = """
import signal, sys
from tasklib import Config, TaskQueue

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests in the background ignores it
queue = TaskQueue(Config(database_url=sys.argv[1], max_retries=0))

@queue.task
async def busy() -> None:
    for _ in range(2):  # asyncio asks politely at first
        signal.raise_signal(signal.SIGINT)

busy.submit()
queue.process_batch()
"""


def test_ctrl_c_is_the_programs_and_spends_no_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    ended = python.run([sys.executable, "-c", CTRL_C, url], capture_output=True, text=True, check=False)

    assert ended.returncode == -signal.SIGINT, ended.stderr
    with TaskQueue(url) as queue:
        (task,) = queue.list()
    assert (task.state.value, task.attempts, task.error) == ("pending", 0, None)


FORKS = """
import asyncio, os, sys
from tasklib import Config, TaskQueue

queue = TaskQueue(Config(database_url="sqlite:///:memory:", max_retries=0))

def copy_and_wait(how: str) -> int:
    copy = os.fork()
    if copy:
        return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    if how == "raise":
        raise ValueError(how)
    return sys.exit(5) if how == "exit" else 0

@queue.task
def thread(how: str) -> int:
    return copy_and_wait(how)

@queue.task
async def at_once(how: str) -> int:
    return copy_and_wait(how)

@queue.task
async def later(how: str) -> int:
    await asyncio.sleep(0)
    return copy_and_wait(how)

@queue.task
async def awaits_in_the_copy(how: str) -> int:
    copy = os.fork()
    if not copy:
        await asyncio.sleep(0)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])

for task in (thread, at_once, later, awaits_in_the_copy):
    ids = [task.submit(how) for how in ("return", "raise", "exit")]
    queue.process_batch()
    print(task.name, [each.wait() for each in ids], flush=True)
"""


def test_the_copy_that_a_fork_makes_ends_where_the_function_ends() -> None:
    ended = python.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=180)

    assert ended.stdout.splitlines() == [
        "thread [0, 1, 5]",
        "at_once [0, 1, 5]",
        "later [0, 1, 5]",
        "awaits_in_the_copy [0, 0, 0]",
    ], ended.stderr
    assert ended.stderr.count("ValueError: raise\n") == 3
