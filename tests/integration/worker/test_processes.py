"""Tasks in child processes: what they are given, what comes back, and how the processes are kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tasklib import Config, ManualClock, Middleware, Task, TaskContext, TaskQueue, TaskState
from tests.fixtures import python
from tests.fixtures.queues import open_queue
from tests.fixtures.waiting import eventually
from tests.programs import process_tasks as tasks
from tests.programs.processes import exists, read, started_by, working

pytestmark = [pytest.mark.backends("postgres-newest"), pytest.mark.usefixtures("forked_children")]
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def queue(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskQueue]:
    """The queue of `process_tasks` on the test's database, here and in child processes."""
    monkeypatch.setenv("PROCESS_TASKS_URL", database_url)
    monkeypatch.setenv("PROCESS_TASKS_FOLDER", str(tmp_path))
    with TaskQueue(
        Config(database_url=database_url, base_retry_delay_seconds=0), registry=tasks.queue.registry
    ) as queue:
        yield queue


def run(queue: TaskQueue, name: str, **kwargs: Any) -> Task:
    """The task after one attempt."""
    task_id = queue.enqueue(name, kwargs)
    queue.process_batch()
    return read(queue, task_id)


def value_of(task: Task) -> Any:
    assert task.state is TaskState.COMPLETED, task.error
    assert task.result is not None
    return task.result["value"]


GIVEN = {
    "when": "2026-01-02T03:04:05Z",
    "key": str(UUID(int=7)),
    "colour": "red",
    "point": {"x": 1, "y": 2},
    "order": {"number": 3, "placed": "2026-01-02T03:04:05Z"},
}
ESCAPES = {
    "cancel": "asyncio.exceptions.CancelledError: cancel",
    "interrupt": "KeyboardInterrupt: interrupt",
    "exit": "SystemExit: exit",
}
ENDINGS = [
    ("retry_on", TaskState.FAILED, "Refused: again", 60),
    ("other", TaskState.FAILED, "ValueError: not named", None),
    ("abort_on", TaskState.FAILED, "KeyError: 'named'", None),
    ("Retry", TaskState.FAILED, "the task asked for a retry", 77),
    ("Snooze", TaskState.PENDING, None, 88),
    ("Abort", TaskState.FAILED, "enough", None),
    ("SystemExit", TaskState.FAILED, "SystemExit: the task exits", None),
    ("result", TaskState.FAILED, "the result cannot be stored", None),
]
PAYLOADS: dict[str, tuple[str, Any]] = {
    "types": ("types_of", GIVEN),
    "coroutine": ("add_async", {"a": 1, "b": 2}),
    "payload": ("handled", [1, None, {"deep": 2.5}]),
    "large": ("handled", "é" * 400_000),
    "where": ("where", {}),
    "noop": ("noop", {}),
    **{f"fail {how}": ("fail", {"how": how}) for how, *_ in ENDINGS},
    **{f"escape {how}": ("escape", {"how": how}) for how in ESCAPES},
}


@pytest.fixture(scope="module")
def ended(newest_schema: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Task]]:
    """The tasks of PAYLOADS after one attempt of each, all in the same few child processes."""
    with pytest.MonkeyPatch.context() as patch:
        python.fork_what_workers_start(patch.setattr)
        patch.setenv("PROCESS_TASKS_URL", newest_schema)
        patch.setenv("PROCESS_TASKS_FOLDER", str(tmp_path_factory.mktemp("processes")))
        config = Config(database_url=newest_schema, base_retry_delay_seconds=60, retry_jitter=0)
        with TaskQueue(config, registry=tasks.queue.registry, clock=ManualClock(NOON)) as queue:
            ids = {
                each: queue.enqueue(name, payload, headers={"tenant": "a"})
                for each, (name, payload) in PAYLOADS.items()
            }
            queue.process_batch()
            yield {each: read(queue, task_id) for each, task_id in ids.items()}


def test_arguments_arrive_as_their_types_and_results_come_back(ended: dict[str, Task]) -> None:
    value = value_of(ended["types"])

    assert value["types"] == ["datetime", "UUID", "Colour", "Point", "Order"]
    assert value["back"] == list(GIVEN.values())


def test_a_coroutine_function_runs_on_the_loop_its_resources_were_opened_on(ended: dict[str, Task]) -> None:
    assert value_of(ended["coroutine"]) == 3


@pytest.mark.parametrize("size", ["payload", "large"])
def test_a_handler_gets_its_payload(ended: dict[str, Task], size: str) -> None:
    assert value_of(ended[size])["got"] == PAYLOADS[size][1]


def test_the_function_sees_the_world_of_the_worker_and_its_own_attempt(ended: dict[str, Task]) -> None:
    value = value_of(ended["where"])
    assert value["pid"] != os.getpid()
    assert value["parent"] == os.getpid()
    assert value["group"] == value["pid"] == value["opened_by"]
    assert value["cwd"] == str(Path.cwd())
    assert (value["attempt"], value["name"], value["headers"]) == (1, "where", {"tenant": "a"})


def test_start_and_end_of_the_work_are_recorded(queue: TaskQueue) -> None:
    task = run(queue, "add", a=1)

    assert task.started_at is not None
    assert task.completed_at is not None
    assert task.created_at <= task.started_at <= task.completed_at


def test_a_traceback_names_the_users_code_only(ended: dict[str, Task]) -> None:
    error = ended["fail other"].error

    assert error is not None
    assert error.startswith("Traceback (most recent call last):\n")
    assert f'File "{tasks.__file__}"' in error
    assert error.endswith("ValueError: not named")
    assert "tasklib/worker" not in error


@pytest.mark.parametrize("how, state, error, delay", ENDINGS)
def test_the_task_and_its_options_choose_the_ending(
    ended: dict[str, Task], how: str, state: TaskState, error: str | None, delay: float | None
) -> None:
    task = ended[f"fail {how}"]

    assert task.state is state
    assert (error is None) if task.error is None else (error or "") in task.error
    due = task.next_retry_at or (task.due_at if state is TaskState.PENDING else None)
    assert (None if due is None else (due - NOON).total_seconds()) == delay
    assert task.attempts == (0 if how == "Snooze" else 1)


@pytest.mark.parametrize("how", ESCAPES)
def test_a_coroutine_that_nobody_told_to_stop_has_failed(ended: dict[str, Task], how: str) -> None:
    task = ended[f"escape {how}"]

    assert (task.state, (task.error or "").splitlines()[-1]) == (TaskState.FAILED, ESCAPES[how])
    assert ended["noop"].state is TaskState.COMPLETED


def test_progress_and_lines_are_visible_while_the_task_runs(queue: TaskQueue, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    task_id = queue.enqueue("report", {"go_on": str(go_on)})

    with working(queue):
        running = eventually(lambda: next((t for t in [read(queue, task_id)] if t.progress == 0.5 and t.log), None))
        go_on.touch()
        done = queue.wait(task_id)

    assert (running.state, running.progress_message) == (TaskState.RUNNING, "half")
    assert [(line.level, line.text) for line in done.log] == [("INFO", "line of the task"), ("WARNING", "careful")]


def test_what_is_logged_in_a_child_is_shown_by_the_worker(
    queue: TaskQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "go-on").touch()
    with caplog.at_level(logging.INFO, "tasklib.task"):
        task = run(queue, "report", go_on=str(tmp_path / "go-on"))

    records = [record for record in caplog.records if record.name == "tasklib.task"]
    assert [record.getMessage() for record in records] == ["line of the task", "careful"]
    assert {record.__dict__["task_id"] for record in records} == {str(task.id)}
    assert {record.process for record in records} != {os.getpid()}


def test_what_is_printed_goes_to_the_workers_stderr(queue: TaskQueue, capfd: pytest.CaptureFixture[str]) -> None:
    run(queue, "say", text="from the child")

    printed = capfd.readouterr()
    assert "from the child" in printed.err
    assert "from the child" not in printed.out


def test_processes_are_kept_and_used_again(queue: TaskQueue) -> None:
    with working(queue, concurrency=1):
        pids = [value_of(queue.wait(queue.enqueue("where")))["pid"] for _ in range(3)]

    assert len(set(pids)) == 1


def test_no_more_processes_are_started_than_tasks_run_at_once(queue: TaskQueue) -> None:
    ids = [queue.enqueue("where") for _ in range(30)]
    with working(queue, concurrency=2):
        pids = {value_of(queue.wait(task_id))["pid"] for task_id in ids}

    assert len(pids) <= 2


def test_a_process_is_replaced_after_so_many_tasks_and_runs_the_shutdown_hooks(
    queue: TaskQueue, tmp_path: Path
) -> None:
    ids = [queue.enqueue("where") for _ in range(4)]
    with working(queue, concurrency=1, max_tasks_per_child=2):
        pids = [value_of(queue.wait(task_id))["pid"] for task_id in ids]

    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2]
    assert {path.name for path in tmp_path.glob("closed-*")} == {f"closed-{pid}" for pid in pids}


def test_none_is_started_before_a_task_needs_one_and_none_is_left(queue: TaskQueue) -> None:
    before = started_by(os.getpid())
    with working(queue):
        queue.wait(queue.enqueue("innocent", {"pid_file": os.devnull}))
        without = started_by(os.getpid()) - before
        pid = value_of(queue.wait(queue.enqueue("where")))["pid"]
        assert exists(pid)

    assert without == set()
    assert started_by(os.getpid()) <= before


def test_a_task_that_takes_long_keeps_no_others_waiting(queue: TaskQueue, tmp_path: Path) -> None:
    """Tasks that take no time are sent to a process ahead of their turn, and called back from behind a slow one."""
    go_on = str(tmp_path / "go-on")
    submit_quick(queue, 100)
    slow = queue.enqueue("mostly_quick", {"how": "wait", "file": go_on})
    last = submit_quick(queue, 100)
    with working(queue, concurrency=2):
        done = [queue.wait(task_id) for task_id in last]
        still = read(queue, slow)
        Path(go_on).touch()
        assert queue.wait(slow).state is TaskState.COMPLETED

    assert still.state is TaskState.RUNNING
    assert {(task.state, task.attempts) for task in done} == {(TaskState.COMPLETED, 1)}


def test_large_tasks_that_are_called_back_from_behind_a_slow_one_get_their_own_results(
    queue: TaskQueue, tmp_path: Path
) -> None:
    """They do not fit into the socket together, so that some are on their way when they are called back."""
    go_on = tmp_path / "go-on"
    for n in range(300):
        queue.enqueue("number", {"n": n})
    slow = queue.enqueue("number", {"n": 300, "file": str(go_on)})
    large = [queue.enqueue("number", {"n": n, "padding": "x" * 900_000}) for n in range(301, 321)]
    with working(queue, concurrency=2):
        results = [value_of(queue.wait(task_id)) for task_id in large]
        go_on.touch()
        last = value_of(queue.wait(slow))
        again = value_of(queue.wait(queue.enqueue("number", {"n": 321})))

    assert [*results, last, again] == [*range(301, 321), 300, 321]


@pytest.mark.parametrize("how, state", [("die", TaskState.BURIED), ("wait", TaskState.FAILED)])
def test_only_the_task_that_ends_its_process_pays(queue: TaskQueue, tmp_path: Path, how: str, state: TaskState) -> None:
    ids = submit_quick(queue, 100)
    guilty = queue.enqueue(
        "mostly_quick", {"how": how, "file": str(tmp_path / "never")}, timeout_seconds=0.3, max_attempts=1
    )
    ids += submit_quick(queue, 100)
    with working(queue, concurrency=2):
        assert queue.wait(guilty).state is state
        innocent = [queue.wait(task_id) for task_id in ids]

    assert {task.state for task in innocent} == {TaskState.COMPLETED}
    assert {task.attempts for task in innocent} == {1}


def submit_quick(queue: TaskQueue, count: int) -> list[UUID]:
    return [queue.enqueue("mostly_quick", {"how": "quick", "file": ""}, timeout_seconds=60) for _ in range(count)]


def test_a_database_in_memory_is_enough_for_tasks_that_do_not_use_it() -> None:
    with TaskQueue("sqlite:///:memory:", registry=tasks.queue.registry) as queue:
        assert value_of(run(queue, "add", a=1, b=1)) == 2


def test_hooks_of_the_queue_run_around_the_function_in_the_child(queue: TaskQueue) -> None:
    """Middleware is registered with the child's own queue, when its module is imported there."""
    here: list[str] = []

    class Noting(Middleware):
        def before(self, ctx: TaskContext) -> None:
            here.append(ctx.task.name)

    queue.add_middleware(Noting())
    value = value_of(run(queue, "where"))

    assert here == []
    assert value["noted"] == ["before where"]


def test_a_task_whose_worker_vanished_runs_in_a_process_of_its_own(database_url: str, queue: TaskQueue) -> None:
    ids = [queue.enqueue("innocent", {"pid_file": os.devnull}), queue.enqueue("innocent_async")]
    suspect(database_url, *ids)
    queue.process_batch()

    pids = [value_of(read(queue, task_id)) for task_id in ids]
    assert os.getpid() not in pids


def test_a_suspect_that_kills_its_process_pays_alone(database_url: str, queue: TaskQueue) -> None:
    guilty = queue.enqueue("guilty", max_attempts=2)
    suspect(database_url, guilty)
    innocent = [queue.enqueue("add", {"a": n}) for n in range(10)]
    with working(queue, concurrency=4):
        task = queue.wait(guilty)
        assert [value_of(queue.wait(task_id)) for task_id in innocent] == [n + 1 for n in range(10)]

    assert task.state is TaskState.BURIED
    assert task.error is not None
    assert "killed by SIGKILL" in task.error


def suspect(url: str, *ids: UUID) -> None:
    """Make it look as if the worker of these tasks had vanished once."""
    with open_queue(url) as queue:
        for task_id in ids:
            queue.sql(f"UPDATE tasks SET lost_count = 1 WHERE id = '{task_id}'")


@pytest.mark.parametrize("name", ["steps_in_a_child", "awaited_steps_in_a_child"])
def test_a_workflow_in_a_child_process_records_its_steps_over_the_pipe(
    queue: TaskQueue, name: str, tmp_path: Path
) -> None:
    clock = ManualClock(NOON)
    queue.clock = clock
    path = tmp_path / "words"

    waiting = run(queue, name, path=str(path))
    assert (waiting.state, waiting.waits_for, waiting.attempts) == (TaskState.PENDING, "sleep", 0)
    clock.advance(2)
    queue.process_batch()

    done = read(queue, waiting.id)
    words = [line.split() for line in path.read_text().splitlines()]
    assert done.result == {"value": sorted(word for word, _ in words)}
    assert len(words) == len({word for word, _ in words})
    assert all(int(pid) != os.getpid() for _, pid in words)


def test_a_task_in_a_child_process_restarts(queue: TaskQueue, tmp_path: Path) -> None:
    path = tmp_path / "words"

    task_id = run(queue, "restarts_in_a_child", path=str(path), left=2).id
    while queue.process_batch():
        pass

    done = read(queue, task_id)
    assert (done.result, done.kwargs["left"], done.attempts) == ({"value": ["0 left"]}, 0, 1)
    assert [line.split()[0] for line in path.read_text().splitlines()] == ["2", "1", "0"]


def test_a_workflow_in_a_child_process_spends_over_the_pipe(queue: TaskQueue) -> None:
    clock = ManualClock(NOON)
    queue.clock = clock
    queue.set_budget("calls", per_minute=10)

    waiting = run(queue, "spends_in_a_child", cost=6)
    refused = run(queue, "spends_in_a_child", cost=11)
    assert (waiting.state, waiting.waits_for) == (TaskState.PENDING, "budget calls")
    assert "holds at most 10 tokens, and 11 are asked for at once" in (refused.error or "")
    clock.advance(25)
    queue.process_batch()

    assert read(queue, waiting.id).result == {"value": "spent"}
