"""`tasklib worker` as an operator runs it: a process that finds the tasks, works, and stops when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.waiting import eventually

TASKS = """
import time
import tasklib

@tasklib.task
def add(a: int, b: int) -> int:
    return a + b

@tasklib.task(name="email.send")
def send() -> None:
    pass

@tasklib.task
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"

@tasklib.task(max_retries=0, timeout_seconds=0.05)
def stuck() -> None:
    time.sleep(600)

@tasklib.task(max_retries=0)
def evil() -> None:
    raise ValueError("first\\x1b[31m\\nsecond")
"""
OWN_QUEUE = """
import os
from tasklib import TaskQueue

queue = TaskQueue(os.environ["OWN_URL"])

@queue.task
def own(n: int) -> int:
    return n * 2
"""
LOGGED = """
import logging
import tasklib

logging.basicConfig(format="MINE %(levelname)s %(message)s", level="WARNING")

@tasklib.task
async def quick() -> None: ...

@tasklib.task
def interrupted() -> None:
    raise KeyboardInterrupt

@tasklib.task(isolation="process")
def hungry() -> int:
    return len(bytearray(600 << 20))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as users have it."""
    folder = tmp_path / "project"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "__init__.py").touch()
    (folder / "app" / "tasks.py").write_text(TASKS)
    (folder / "own.py").write_text(OWN_QUEUE)
    (folder / "logged.py").write_text(LOGGED)
    (folder / "two.py").write_text(
        "from tasklib import TaskQueue\na, b = TaskQueue('sqlite:///a.db'), TaskQueue('sqlite:///b.db')"
    )
    (folder / "broken.py").write_text("import tasklib\n\n1 / 0\n")
    (folder / "needy.py").write_text("import no_such_package\n")
    (folder / "empty.py").touch()
    return folder


@pytest.fixture
def start(project: Path) -> Iterator[Start]:
    """Starts `tasklib worker …` in the project's folder; whatever still runs at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tasklib", "worker", *arguments]
        kept = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "TASKLIB_DATABASE_URL")}
        process = python.popen(
            command, cwd=project, env=kept | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_it_runs_tasks_and_stops_on_sigterm(database_url: str, start: Start) -> None:
    with TaskQueue(database_url) as queue:
        worker = start("app.tasks", "--database-url", database_url, "--concurrency", "3")
        said = worker.stdout.readline()
        task = queue.wait(queue.enqueue("add", {"a": 2, "b": 3}), timeout=180)
        (info,) = queue.workers()
        worker.send_signal(signal.SIGTERM)
        code, _, log = ended(worker)

        assert task.result == {"value": 5}
        assert said.startswith(f"Worker {info.worker_id} on ")
        assert said.endswith(" runs add, email.send, evil, slow, stuck, 3 at once.\n")
        assert code == 0
        assert " INFO    tasklib.worker: worker " in log
        assert queue.workers() == []


def test_several_processes_take_every_option(sqlite_url: str, start: Start) -> None:
    options = [
        "--processes",
        "2",
        "--concurrency",
        "20",
        "--only",
        "email.*",
        "--grace",
        "30",
        "--log-level",
        "warning",
    ]
    with TaskQueue(sqlite_url) as queue:
        supervisor = start("app.tasks", *options, "--database-url", sqlite_url)
        eventually(lambda: len(queue.workers()) == 2)
        assert [(each.concurrency, each.names) for each in queue.workers()] == [(20, ("email.send",))] * 2
        left = queue.enqueue("add", {"a": 1, "b": 2})
        assert queue.wait(queue.enqueue("email.send"), timeout=180).state == "completed"
        supervisor.send_signal(signal.SIGTERM)
        code, _, log = ended(supervisor)
        assert (code, log) == (0, "")
        assert queue.get(left).state == "pending"


def test_running_tasks_finish_before_it_ends(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        worker = start("app.tasks", "--database-url", sqlite_url)
        task_id = queue.enqueue("slow", {"seconds": 3})
        eventually(lambda: queue.get(task_id).state == "running")
        worker.send_signal(signal.SIGTERM)
        assert ended(worker)[0] == 0
        assert queue.get(task_id).state == "completed"


def test_too_many_threads_that_never_come_back_are_exit_4(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        for _ in range(10):
            queue.enqueue("stuck", max_attempts=1, timeout_seconds=0.05)
        worker = start("app.tasks", "--database-url", sqlite_url, "--processes", "0", "--concurrency", "10")
        code, _, said = ended(worker)
        assert code == 4
        assert said.splitlines()[-1].startswith("error: 10 threads never came back")
        assert queue.count(state="failed") == 10


def test_what_does_not_finish_within_the_grace_is_given_back(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        worker = start("app.tasks", "--database-url", sqlite_url, "--grace", "0.1")
        task_id = queue.enqueue("slow", {"seconds": 600})
        eventually(lambda: queue.get(task_id).state == "running")
        worker.send_signal(signal.SIGTERM)
        assert ended(worker)[0] == 0
        task = queue.get(task_id)
        assert (task.state, task.attempts) == ("pending", 0)


def test_only_tasks_that_match_are_run(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        left = queue.enqueue("add", {"a": 1, "b": 1})
        start("app.tasks", "--database-url", sqlite_url, "--only", "email.*", "--only", "evil")
        queue.wait(queue.enqueue("email.send"), timeout=180)
        assert queue.get(left).state == "pending"
        assert set(queue.workers()[0].names) == {"email.send", "evil"}


def test_a_queue_of_the_module_says_where_it_works(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        start("own", OWN_URL=sqlite_url)
        assert queue.wait(queue.enqueue("own", {"n": 4}), timeout=180).result == {"value": 8}


def test_the_start_can_be_read_by_a_program(sqlite_url: str, start: Start) -> None:
    worker = start("app.tasks", "--json", "--database-url", sqlite_url, "-c", "2")
    text = ""
    while not text.endswith("\n}\n"):
        text += worker.stdout.readline()
    said = json.loads(text)
    assert (said["database"], said["concurrency"]) == (sqlite_url, 2)
    assert said["names"] == ["add", "email.send", "evil", "slow", "stuck"]


def test_it_logs_as_the_program_has_set_up_and_limits_the_memory_of_tasks(sqlite_url: str, start: Start) -> None:
    options = ["--database-url", sqlite_url, "--memory-limit", "300"]
    with TaskQueue(sqlite_url) as queue:
        worker = start("logged", *options, "--processes", "0", "--log-level", "debug")
        hungry = queue.wait(queue.enqueue("hungry", max_attempts=1), timeout=180)
        quick = queue.wait(queue.enqueue("quick"), timeout=180)
        worker.send_signal(signal.SIGTERM)
        _, _, log = ended(worker)

        assert "memory limit of 300 MiB reached" in (hungry.error or "")
        said = [line for line in log.splitlines() if str(quick.id) in line]
        assert len(said) == 2
        assert said[0] == f"MINE DEBUG task quick {quick.id}, attempt 1: started"
        assert said[1].startswith(f"MINE DEBUG task quick {quick.id}, attempt 1: completed after ")

        worker = start("logged", *options)  # the worker processes of a supervisor are given the options too
        again = queue.wait(queue.enqueue("hungry", max_attempts=1), timeout=180)
        worker.send_signal(signal.SIGTERM)
        _, _, log = ended(worker)
        assert "memory limit of 300 MiB reached" in (again.error or "")
        assert [line.split()[:2] for line in log.splitlines() if str(again.id) in line] == [["MINE", "WARNING"]]


def test_a_task_that_raises_keyboard_interrupt_keeps_it_from_nothing(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        worker = start("logged", "--database-url", sqlite_url)
        task = queue.wait(queue.enqueue("interrupted", max_attempts=1), timeout=180)
        assert queue.wait(queue.enqueue("quick"), timeout=180).state == "completed"
        worker.send_signal(signal.SIGTERM)
        code, _, _ = ended(worker)
        assert (task.state, code, queue.workers()) == ("failed", 0, [])


def test_no_task_can_forge_a_line_of_the_log(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        worker = start("app.tasks", "--database-url", sqlite_url)
        queue.wait(queue.enqueue("evil", max_attempts=1), timeout=180)
        worker.send_signal(signal.SIGTERM)
        _, _, log = ended(worker)
    assert "\x1b" not in log
    assert all(line[:4].isdigit() for line in log.splitlines())


MISTAKES: list[tuple[list[str], int, str]] = [
    (["nope"], 2, "there is no module nope: neither "),
    (["app.nope"], 2, "there is no module app.nope: neither "),
    (["app/tasks.py"], 2, "app/tasks.py is a file; name the module instead: app.tasks"),
    (["own:nothing"], 2, "own:nothing is not a TaskQueue: there is nothing of that name"),
    (["own:own"], 2, "own:own is not a TaskQueue: that is a TaskFunction"),
    (["two"], 2, "several queues are defined: two:a, two:b; name one of them, as in two:a"),
    (["two:a"], 2, "no task is defined in two:a; decorate functions with @tasklib.task or @queue.task"),
    (["empty"], 2, "no task is defined in empty; decorate functions with @tasklib.task or @queue.task"),
    (["broken"], 1, "cannot import broken: ZeroDivisionError: division by zero ("),
    (["needy"], 1, "cannot import needy: ModuleNotFoundError: No module named 'no_such_package' ("),
    (["app.tasks", "--only", "x.*"], 2, "--only x.* matches none of: add, email.send, evil, slow"),
    (["app.tasks", "--log-level", "loud"], 2, "no such log level: 'loud'; choose from debug, info, warning, error"),
    (
        ["app.tasks", "--dsn", "postgresql://u:s3cret@127.0.0.1:1/x"],
        3,
        "cannot connect to postgresql://u:***@127.0.0.1:1/x",
    ),
    (
        ["own", "--dsn", "sqlite:///other.db"],
        2,
        "own:queue works on sqlite:///own.db, but --database-url says sqlite:///other.db",
    ),
    ([], 2, "Missing argument 'MODULE'."),
]
# Each in a copy of a process that has imported everything: a start of Python takes longer than all of these together.
TRY_EACH = """
import json, os, sys, tempfile
import psycopg, pydantic, tasklib.queue, tasklib.worker
from tasklib.cli.main import main

for arguments in json.loads(sys.argv[1]):
    said = [tempfile.TemporaryFile("w+") for _ in range(2)]
    child = os.fork()
    if not child:
        for number, file in enumerate(said, start=1):
            os.dup2(file.fileno(), number)
        sys.argv = ["tasklib", "worker", *arguments, "--processes", "0"]  # tests/chaos starts several
        sys.path.insert(0, os.getcwd())
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, *(file.seek(0) or file.read() for file in said)]), flush=True)
"""


def test_what_keeps_it_from_starting_is_said_in_one_line(project: Path) -> None:
    command = [sys.executable, "-c", TRY_EACH, json.dumps([arguments for arguments, *_ in MISTAKES])]
    kept = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "TASKLIB_DATABASE_URL")}
    kept["OWN_URL"] = "sqlite:///own.db"
    tried = python.run(command, cwd=project, env=kept, capture_output=True, text=True, timeout=180)
    answers = [json.loads(line) for line in tried.stdout.splitlines()]
    for (arguments, code, said), (returned, out, err) in zip(MISTAKES, answers, strict=True):
        assert (returned, out) == (code, ""), arguments
        assert err.splitlines()[-1].startswith(f"error: {said}"), arguments
        assert "Traceback" not in err
        assert "s3cret" not in err


def test_it_says_that_the_queue_is_paused(sqlite_url: str, start: Start) -> None:
    with TaskQueue(sqlite_url) as queue:
        queue.pause("add")
    worker = start("app.tasks", "--database-url", sqlite_url)
    worker.stdout.readline()
    worker.send_signal(signal.SIGTERM)
    assert "note: add is paused; tasklib resume add\n" in ended(worker)[2]
