"""The end of child processes: on timeout, on cancel, by themselves, with their worker; and nothing is left of them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasklib import Config, ManualClock, TaskQueue, TaskState
from tests.fixtures import python
from tests.fixtures.queues import Face, open_queue
from tests.fixtures.waiting import eventually
from tests.programs import process_tasks as tasks
from tests.programs.processes import exists, members_of, pids_in, read, started_by, working

pytestmark = [pytest.mark.backends("sqlite-file"), pytest.mark.usefixtures("forked_children")]


@pytest.fixture
def queue(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskQueue]:
    """The queue of `process_tasks` on the test's database; what fails is tried again at once."""
    monkeypatch.setenv("PROCESS_TASKS_URL", database_url)
    config = Config(database_url=database_url, base_retry_delay_seconds=0)
    with TaskQueue(config, registry=tasks.queue.registry) as queue:
        yield queue


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    """Where tasks write down the processes they run in."""
    return tmp_path / "pids"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test does, its worker leaves no process behind."""
    before = started_by(os.getpid())
    yield
    assert started_by(os.getpid()) <= before


def running_in(pid_file: Path, count: int = 1) -> list[int]:
    """The processes of a task, once it runs."""
    return eventually(lambda: pids if len(pids := pids_in(pid_file)) >= count else None)


def group_is_gone(pid: int) -> bool:
    return not exists(pid) and not members_of(pid)


# Timeouts


def test_a_timeout_ends_a_loop_that_never_lets_go(queue: TaskQueue, pid_file: Path) -> None:
    task_id = queue.enqueue("spin", {"pid_file": str(pid_file)}, max_attempts=1, timeout_seconds=1)
    queue.process_batch()

    task = read(queue, task_id)
    [pid] = pids_in(pid_file)
    assert (task.state, task.history[-1].outcome) == (TaskState.FAILED, "timeout")
    assert task.error is not None
    assert "timeout of 1 s" in task.error
    assert group_is_gone(pid)


def test_importing_the_task_does_not_count_as_its_time(queue: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCESS_TASKS_SLOW", "1.5")
    task_id = queue.enqueue("add", {"a": 1}, timeout_seconds=1)
    queue.process_batch()

    assert read(queue, task_id).state is TaskState.COMPLETED


def test_timeouts_in_a_row_leave_every_slot_free_and_no_process(queue: TaskQueue, pid_file: Path) -> None:
    for _ in range(6):
        queue.enqueue("spin", {"pid_file": str(pid_file)}, max_attempts=1, timeout_seconds=0.05)
    with working(queue, concurrency=2):
        eventually(lambda: queue.count(state="failed") == 6)
        pids = pids_in(pid_file)
        left = [pid for pid in pids if not group_is_gone(pid)]
        after = [queue.enqueue("where") for _ in range(2)]
        completed = [queue.wait(task_id).state for task_id in after]

    assert pids
    assert left == []
    assert completed == [TaskState.COMPLETED] * 2


def test_the_function_can_clean_up_before_it_is_killed(queue: TaskQueue, pid_file: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    for name in ("clean_up", "clean_up_async"):
        given = {"pid_file": str(pid_file), "note_file": str(note)}
        queue.enqueue(name, given, max_attempts=1, timeout_seconds=1)
        queue.process_batch()
        assert note.read_text() == "cancelled=True"
        note.unlink()


def test_one_that_ignores_sigterm_is_killed(queue: TaskQueue, pid_file: Path) -> None:
    task_id = queue.enqueue("ignore_sigterm", {"pid_file": str(pid_file)}, max_attempts=1, timeout_seconds=1)
    queue.process_batch()

    assert read(queue, task_id).history[-1].outcome == "timeout"
    assert group_is_gone(*pids_in(pid_file))


def test_what_the_function_has_started_ends_with_it(queue: TaskQueue, pid_file: Path) -> None:
    task_id = queue.enqueue("have_child", {"pid_file": str(pid_file)})
    with working(queue):
        pids = running_in(pid_file, 3)
        queue.cancel(task_id)
        queue.wait(task_id)

    # The orphans are reaped by init, a moment after they have died.
    assert eventually(lambda: not [pid for pid in pids if exists(pid)])


# Cancel


def test_a_cancelled_task_is_ended(queue: TaskQueue, pid_file: Path) -> None:
    task_id = queue.enqueue("spin", {"pid_file": str(pid_file)})
    with working(queue):
        [pid] = running_in(pid_file)
        queue.cancel(task_id)
        task = queue.wait(task_id)
        assert group_is_gone(pid)

    assert task.state is TaskState.CANCELLED


# By themselves


DEATHS: list[tuple[str, dict[str, Any], str]] = [
    ("exit_at_once", {"code": 3}, "ended itself with exit code 3"),
    ("exit_at_once", {"code": 0}, "ended itself with exit code 0"),
    ("crash", {}, "crashed with SIGSEGV"),
    ("kill_itself", {"number": signal.SIGKILL}, "was killed by SIGKILL"),
    ("kill_itself", {"number": signal.SIGUSR1}, "was ended by SIGUSR1"),
]


def test_one_that_dies_is_buried_and_says_of_what(queue: TaskQueue) -> None:
    ids = [queue.enqueue(name, kwargs, max_attempts=1) for name, kwargs, _ in DEATHS]
    queue.process_batch()

    for task_id, (_, _, cause) in zip(ids, DEATHS, strict=True):
        task = read(queue, task_id)
        assert (task.state, [attempt.outcome for attempt in task.history]) == (TaskState.BURIED, ["crashed"])
        assert str(task.error).startswith("tasklib.errors.ProcessDied: the task's child process ")
        assert cause in str(task.error)


def test_one_that_dies_is_tried_again_and_then_buried(database_url: str) -> None:
    clock = ManualClock()
    with TaskQueue(database_url, registry=tasks.queue.registry, clock=clock) as queue:
        task_id = queue.enqueue("crash", {}, max_attempts=2)
        queue.process_batch()
        first = read(queue, task_id)
        clock.advance(60)
        queue.process_batch()
        last = read(queue, task_id)

    assert (first.state, first.retry_count, first.next_retry_at is not None) == (TaskState.FAILED, 1, True)
    assert (last.state, last.attempts) == (TaskState.BURIED, 2)
    assert [attempt.outcome for attempt in last.history] == ["crashed", "crashed"]


def test_a_process_killed_from_outside_is_replaced(queue: TaskQueue, pid_file: Path) -> None:
    task_id = queue.enqueue("spin", {"pid_file": str(pid_file)}, max_attempts=2)
    with working(queue, concurrency=1):
        [pid] = running_in(pid_file)
        os.kill(pid, signal.SIGKILL)
        running_in(pid_file, 2)
        queue.cancel(task_id)
        queue.wait(task_id)

    assert "killed by SIGKILL" in str(read(queue, task_id).history[0].error)


def test_an_idle_process_killed_from_outside_costs_no_task(queue: TaskQueue) -> None:
    with working(queue, concurrency=1):
        task = queue.wait(queue.enqueue("where"))
        assert task.result is not None
        pid = task.result["value"]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not exists(pid))
        again = queue.wait(queue.enqueue("where"))

    assert (again.state, again.attempts) == (TaskState.COMPLETED, 1)


def test_sigterm_from_a_service_manager_leaves_the_decision_to_the_worker(queue: TaskQueue, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    task_id = queue.enqueue("report", {"go_on": str(go_on)})
    with working(queue):
        eventually(lambda: read(queue, task_id).progress == 0.5)
        for pid in started_by(os.getpid()):
            os.kill(pid, signal.SIGTERM)
        go_on.touch()
        task = queue.wait(task_id)

    assert (task.state, task.attempts) == (TaskState.COMPLETED, 1)


# With the worker


def test_a_worker_that_stops_gives_back_what_runs_and_leaves_no_process(queue: TaskQueue, pid_file: Path) -> None:
    task_id = queue.enqueue("ignore_sigterm", {"pid_file": str(pid_file)})
    with working(queue, grace_seconds=0.1):
        [pid] = running_in(pid_file)

    task = read(queue, task_id)
    assert (task.state, task.attempts) == (TaskState.PENDING, 0)
    assert group_is_gone(pid)


def test_a_running_process_may_finish_within_the_grace(queue: TaskQueue, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    task_id = queue.enqueue("report", {"go_on": str(go_on)})
    with working(queue, grace_seconds=20) as worker:
        eventually(lambda: read(queue, task_id).progress == 0.5)
        # Once the worker stops, which it is told at the end of this block.
        threading.Thread(target=lambda: (eventually(lambda: worker.is_stopping), go_on.touch())).start()

    assert read(queue, task_id).state is TaskState.COMPLETED


@pytest.mark.parametrize("name, kwargs", [("hold_gil", {"seconds": 60}), ("have_child", {})])
def test_processes_end_with_a_worker_that_is_killed(
    queue: TaskQueue, pid_file: Path, name: str, kwargs: dict[str, Any]
) -> None:
    queue.enqueue(name, {"pid_file": str(pid_file), **kwargs})
    worker = python.popen([sys.executable, "-m", "tests.programs.process_worker", "2"], start_new_session=True)
    try:
        pids = running_in(pid_file, 3 if name == "have_child" else 1)
        below = psutil.Process(worker.pid).children(recursive=True)
        started = {child.pid for child in below if child.name() != python.NURSERY} | set(pids)
    finally:
        worker.kill()
        worker.wait()

    assert len(started) >= 2  # the child, and the orphan_killer
    assert eventually(lambda: not [pid for pid in started if exists(pid)])


def test_processes_end_with_a_killed_worker_whose_helper_was_killed_first(queue: TaskQueue, pid_file: Path) -> None:
    queue.enqueue("spin", {"pid_file": str(pid_file)})
    worker = python.popen([sys.executable, "-m", "tests.programs.process_worker", "2"], start_new_session=True)
    try:
        [pid] = running_in(pid_file)
        killers = [
            each for each in psutil.Process(worker.pid).children() if "orphan_killer.py" in " ".join(each.cmdline())
        ]
        for each in killers:
            each.kill()
    finally:
        worker.kill()
        worker.wait()

    assert len(killers) == 1
    assert eventually(lambda: not exists(pid))


# In a transaction


def make_table(face: Face) -> str:
    """A table for effects; its name as other connections must say it."""
    face.sql("CREATE TABLE effects (text TEXT)")
    schema = face.plain.config.db_schema
    return f"{schema}.effects" if schema else "effects"


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.parametrize("name", ["write_and_submit", "write_async"])
def test_effects_and_completion_commit_together_in_the_child(database_url: str, queue: TaskQueue, name: str) -> None:
    with open_queue(database_url) as face:
        table = make_table(face)
        given = {"table": table, "text": "once"} | ({"die": False} if name == "write_and_submit" else {})
        task_id = queue.enqueue(name, given)
        queue.process_batch()

        task = read(queue, task_id)
        assert (task.state, task.result) == (TaskState.COMPLETED, {"value": "once"}), task.error
        assert face.sql("SELECT text FROM effects") == [{"text": "once"}]
        assert queue.count(name="noop", state="completed") == (1 if name == "write_and_submit" else 0)


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_nothing_of_a_child_that_is_killed_before_its_commit_stays(database_url: str, queue: TaskQueue) -> None:
    with open_queue(database_url) as face:
        given = {"table": make_table(face), "text": "never", "die": True}
        task_id = queue.enqueue("write_and_submit", given, max_attempts=1)
        queue.process_batch()

        assert read(queue, task_id).state is TaskState.BURIED
        assert face.sql("SELECT text FROM effects") == []
        assert queue.count(name="noop") == 0


def test_a_database_in_memory_cannot_be_reached_from_a_child() -> None:
    with TaskQueue("sqlite:///:memory:", registry=tasks.queue.registry) as queue:
        task_id = queue.enqueue("write_and_submit", {"table": "x", "text": "x", "die": False}, max_attempts=1)
        queue.process_batch()

        assert "cannot reach a database in this process's memory" in str(read(queue, task_id).error)
