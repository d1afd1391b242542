"""A worker inside another program: who handles signals, how it is stopped, and what is said where it cannot run."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import tasklib
from tasklib import ConfigurationError, TaskQueue, TaskWorker, WaitTimeout
from tests.fixtures import python
from tests.fixtures.waiting import PATIENCE, aeventually, eventually

STOPS = (signal.SIGTERM, signal.SIGINT)


STUBBORN = """
import asyncio, sys
from tasklib import TaskQueue

queue = TaskQueue(sys.argv[1])
left = []

async def endless():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@queue.task
async def stubborn():
    print("begun", flush=True)
    await endless()

@queue.task
async def leaves_one_behind():
    left.append(asyncio.create_task(endless()))
    print("begun", flush=True)

queue.enqueue(sys.argv[2])
queue.run(grace_seconds=0.1)
"""


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with TaskQueue("sqlite:///:memory:") as queue:
        yield queue


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in STOPS]


async def test_an_awaited_worker_leaves_signals_alone_unless_asked(queue: TaskQueue) -> None:
    before = handlers()
    worker = asyncio.create_task(queue.arun())
    await aeventually(queue.workers)
    assert handlers() == before
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)

    worker = asyncio.create_task(queue.arun(signals=True))
    await aeventually(lambda: all(now is not then for now, then in zip(handlers(), before, strict=True)))
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(worker, 180)
    assert handlers() == before


async def test_a_task_worker_takes_no_signal_from_a_program_that_handles_it(tmp_path: Path) -> None:
    tasklib.init(f"sqlite:///{tmp_path}/tasks.db")
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        mine = handlers()
        worker = TaskWorker(f"sqlite:///{tmp_path}/tasks.db")
        running = asyncio.create_task(worker.run())
        with TaskQueue(f"sqlite:///{tmp_path}/tasks.db") as other:
            await aeventually(other.workers)
        assert handlers() == mine
        worker.stop()
        await asyncio.wait_for(running, 180)
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_task_worker_runs_once_at_a_time_and_its_stop_ends_it(tmp_path: Path) -> None:
    tasklib.init(f"sqlite:///{tmp_path}/tasks.db")
    worker = TaskWorker(f"sqlite:///{tmp_path}/tasks.db")
    running = asyncio.create_task(worker.run())
    with TaskQueue(f"sqlite:///{tmp_path}/tasks.db") as other:
        await aeventually(other.workers)

    with pytest.raises(ConfigurationError, match="runs already"):
        await worker.run()
    worker.stop()
    await asyncio.wait_for(running, 180)


SERVER = """
import asyncio, contextlib, sys
from tasklib import TaskQueue

queue = TaskQueue(sys.argv[1])

@queue.task
async def noop() -> None: ...

@contextlib.asynccontextmanager
async def lifespan(app):
    worker = asyncio.create_task(queue.arun())
    yield
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker

async def hello(request):
    task = await queue.await_(await noop.asubmit(), timeout=180)
    return PlainTextResponse(task.state)

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

app = Starlette(routes=[Route("/", hello)], lifespan=lifespan)
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="info"))
server.run()
"""


def test_a_coroutine_that_swallows_its_cancellation_keeps_no_program_alive(tmp_path: Path) -> None:
    names = ["stubborn", "leaves_one_behind"]
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in names]
    commands = [[sys.executable, "-c", STUBBORN, url, name] for url, name in zip(urls, names, strict=True)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    programs = [python.popen(command, **pipes) for command in commands]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGTERM)
    try:
        said = [program.communicate(timeout=180)[1] for program in programs]
    finally:
        for program in programs:
            program.kill()

    assert [program.returncode for program in programs] == [0, 0], said
    with TaskQueue(urls[0]) as queue:
        (task,) = queue.list()
        assert (task.state.value, task.attempts, queue.workers()) == ("pending", 0, [])
    assert f"task stubborn {task.id} does not end; its coroutine is abandoned" in said[0]
    assert "endless" in said[1]
    assert "does not end; it is left behind" in said[1]


def test_a_web_server_with_a_worker_in_it_stops_when_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVER, f"sqlite:///{tmp_path}/tasks.db"]
    with python.popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = next(line for line in server.stderr if "running on" in line)
        address = line.split("running on ")[1].split()[0]
        with urllib.request.urlopen(address, timeout=180) as answer:
            assert answer.read() == b"completed"
        server.send_signal(signal.SIGTERM)
        rest = server.communicate(timeout=180)[1]
    assert "Application shutdown complete" in rest
    with TaskQueue(f"sqlite:///{tmp_path}/tasks.db") as queue:
        assert not queue.workers()


@pytest.mark.parametrize("early", [True, False], ids=["before it starts", "while it runs"])
def test_a_worker_in_a_thread_ends_when_its_event_is_set(queue: TaskQueue, early: bool) -> None:
    stop = threading.Event()
    if early:
        stop.set()
    thread = threading.Thread(target=queue.run, kwargs={"stop": stop}, daemon=True)
    thread.start()
    if not early:
        eventually(queue.workers)
        stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not queue.workers()


async def test_a_worker_that_stops_says_so_before_its_next_heartbeat(queue: TaskQueue) -> None:
    begun, end, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def last() -> None:
        begun.set()
        await end.wait()

    async def reasons() -> list[str]:
        return [reason.code for reason in (await queue.aexplain(waiting)).reasons]

    queue.register_handler("last", last)
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.arun(concurrency=2, stop=stop))
        await queue.aenqueue("last")
        await begun.wait()
        stop.set()
        waiting = await queue.aenqueue("last", delay_seconds=3600)
        await aeventually(lambda: queue.workers()[0].stopping)
        assert await reasons() == ["delayed", "no_worker"]
        end.set()


async def test_run_inside_an_event_loop_names_arun(queue: TaskQueue) -> None:
    with pytest.raises(ConfigurationError, match=r"await queue\.arun"):
        queue.run()


async def test_waiting_in_the_event_loop_of_the_worker_is_refused(queue: TaskQueue) -> None:
    worker = asyncio.ensure_future(queue.arun())
    task_id = queue.enqueue("nobody's")
    await aeventually(lambda: len(queue.workers()) == 1)
    with pytest.raises(ConfigurationError, match=r"await task_id\.await_"):
        task_id.wait()
    worker.cancel()
    await asyncio.wait([worker])
    with pytest.raises(WaitTimeout):
        task_id.wait(timeout=0.01)


CALLS: list[Callable[[TaskQueue], Any]] = [
    lambda queue: queue.arun(),
    lambda queue: queue.aprocess_batch(),
    lambda queue: queue.acount(),
    lambda queue: queue.aenqueue("noop"),
    lambda queue: queue.await_("01900000-0000-7000-8000-000000000000"),
]


@pytest.mark.parametrize("call", CALLS)
def test_without_asyncio_as_under_trio_the_message_is_our_own(
    queue: TaskQueue, call: Callable[[TaskQueue], Coroutine[Any, Any, Any]]
) -> None:
    with pytest.raises(ConfigurationError, match="run on asyncio, and no event loop of asyncio runs here; under Trio"):
        call(queue).send(None)  # as any other event loop would begin it


def test_a_worker_that_knows_no_task_says_so(queue: TaskQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.process_batch()
    assert "knows no task, and so runs none: import the modules that define them" in caplog.text


def test_successes_are_logged_where_debug_is_asked_for(queue: TaskQueue, caplog: pytest.LogCaptureFixture) -> None:
    @queue.task
    async def quick() -> None: ...

    @queue.task
    def threaded() -> None: ...

    @queue.task(max_retries=1)
    def broken() -> None:
        raise ValueError("no")

    for task in (quick, threaded, broken):
        task.submit()
    with caplog.at_level(logging.DEBUG, "tasklib.worker"):
        queue.process_batch()
    said = {line.split(maxsplit=2)[1]: line for line in caplog.messages if line.startswith("task ")}
    assert ", attempt 1: completed after " in said["quick"]
    assert ", attempt 1: completed after " in said["threaded"]
    assert ", will be retried in " in said["broken"]
    assert said["broken"].endswith(" s: ValueError: no")


def test_what_a_cancelled_program_had_recorded_already_is_recorded(
    queue: TaskQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []
    queue.on_end(ended.extend)
    queue.register_handler("work", lambda payload: None)
    task_id = queue.enqueue("work")
    send = queue.database.arun

    async def program() -> None:
        written, never = asyncio.Event(), asyncio.Event()

        async def answering_too_late(*args: Any, **options: Any) -> Any:
            answer = await send(*args, **options)
            if not written.is_set() and tasklib.is_completed(queue.get(task_id)):
                written.set()
                await never.wait()
            return answer

        monkeypatch.setattr(queue.database, "arun", answering_too_late)
        worker = asyncio.ensure_future(queue.arun())
        await written.wait()
        assert not worker.done()

    asyncio.run(program())

    assert ended == [str(task_id)]
    assert "late write refused" not in caplog.text
