"""How a child process finds a task's function: in modules, in the main script, or not at all, and what is said then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tasklib import TaskDefinitionError, TaskQueue, TaskState
from tests.fixtures import python

ROOT = Path(__file__).resolve().parents[3]


class Folder:
    """A folder with programs of a user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path / 'tasks.db'}"

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text))

    def run(self, *command: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python there, with the queue's database in DATABASE_URL."""
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "DATABASE_URL": self.url, "PYTHONPATH": path}
        return python.run(
            [sys.executable, *command],
            cwd=self.path,
            env=environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def printed(self, *command: str) -> list[str]:
        done = self.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


MAIN = """
    import os
    from tasklib import TaskQueue

    queue = TaskQueue()

    @queue.task(isolation="process")
    def where(factor: int) -> list[object]:
        return [os.getpid() != PARENT, __name__, 21 * factor]

    PARENT = os.getppid()

    if __name__ == "__main__":
        PARENT = os.getpid()
        task_id = where.submit(2)
        queue.process_batch()
        task = queue.get(task_id)
        print(task.result["value"] if task.result else task.error)
"""


@pytest.mark.parametrize("command", [["main.py"], ["-m", "main"], ["-m", "package.part"]], ids=" ".join)
def test_a_function_of_the_main_script_is_found_without_running_the_script(folder: Folder, command: list[str]) -> None:
    folder.write("main.py", MAIN)
    folder.write("package/part.py", MAIN)

    assert folder.printed(*command) == ["[True, '__mp_main__', 42]"]


def test_files_in_the_current_folder_are_not_taken_for_pythons_modules(folder: Folder) -> None:
    folder.write("bin/main.py", MAIN)
    folder.write("queue.py", "raise SystemExit('not the module of this name')")

    assert folder.printed("bin/main.py") == ["[True, '__mp_main__', 42]"]


def test_a_character_that_the_encoding_of_stdout_lacks_fails_no_task(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    folder.write(
        "main.py",
        """
        from tasklib import TaskQueue

        queue = TaskQueue()

        @queue.task(isolation="process", max_retries=0)
        def say(text: str) -> None:
            print(text)

        if __name__ == "__main__":
            task_id = say.submit("caf\\u00e9")
            queue.process_batch()
            print(queue.get(task_id).state)
        """,
    )
    done = folder.run("main.py")

    assert (done.stdout, done.stderr) == ("completed\n", "caf\\xe9\n")


def test_a_task_that_changes_the_folder_does_not_move_the_database_of_child_processes(folder: Folder) -> None:
    folder.write(
        "main.py",
        """
        import os
        from tasklib import TaskContext, TaskQueue

        queue = TaskQueue("sqlite:///relative.db")

        @queue.task
        def go(folder: str) -> None:
            os.chdir(folder)
            apart.submit()

        @queue.task(isolation="process", transactional=True, max_retries=0)
        def apart(ctx: TaskContext) -> str:
            queue.enqueue("elsewhere")
            return os.getcwd()

        if __name__ == "__main__":
            start = os.getcwd()
            os.mkdir("other")
            go.submit("other")
            queue.process_batch()
            (task,) = queue.list(name="apart")
            print(task.error or task.result["value"] == start, queue.count(), os.listdir(), queue.config.database_url)
        """,
    )

    assert folder.printed("main.py") == ["True 3 [] sqlite:///relative.db"]


def test_a_script_that_works_whenever_it_is_imported_is_told_what_to_do(folder: Folder) -> None:
    folder.write(
        "main.py",
        """
        from tasklib import TaskQueue
        queue = TaskQueue()

        @queue.task(isolation="process", max_retries=0)
        def f(): ...

        if not queue.count():
            f.submit()
        queue.process_batch()
        print(queue.list()[0].error)
        """,
    )

    assert "put what the program does under `if __name__ == '__main__':`" in folder.printed("main.py")[-1]


def test_a_script_that_submits_whenever_it_is_imported_submits_once(folder: Folder) -> None:
    folder.write(
        "main.py",
        """
        from tasklib import TaskQueue
        queue = TaskQueue()

        @queue.task(isolation="process", max_retries=5)
        def f(): ...

        f.submit()
        queue.process_batch()
        (task,) = queue.list()
        print(task.state, task.attempts, task.next_retry_at)
        print(task.error)
        """,
    )

    said = folder.printed("main.py")
    assert said[0] == "failed 1 None"
    assert "a task is submitted while a child process imports this program" in said[-1]


RUN_TIME = """
    import os
    from tasklib import Retry, TaskContext, TaskQueue

    class Refused(Exception): ...

    def handle(payload: dict) -> list[object]:
        return [os.getpid() == PARENT, payload["n"]]

    def add(a: int, ctx: TaskContext, b: int = 1) -> int:
        return a + b + ctx.state.base

    def refuse() -> None:
        raise Refused("not now")

    PARENT = None
    queue = TaskQueue()

    @queue.on_startup
    def start(state):
        state.base = 100

    def main() -> None:
        global PARENT
        PARENT = os.getpid()
        queue.register_handler("handled", handle, isolation="process")
        summed = queue.task(name="sum", isolation="process")(add)
        queue.task(isolation="process", max_retries=5, abort_on=(Refused,))(refuse).submit()
        queue.enqueue("handled", {"n": 7})
        summed.submit(a=1)
        queue.process_batch()
        for task in sorted(queue.list(), key=lambda task: task.name):
            print(task.name, task.state, task.attempts, task.result and task.result["value"])
"""


@pytest.mark.parametrize("program", ["import module; module.main()", "from module import main\n\nmain()"])
def test_a_function_registered_at_run_time_runs_in_a_child_process(folder: Folder, program: str) -> None:
    folder.write("module.py", RUN_TIME)
    folder.write("main.py", program)

    assert folder.printed("main.py") == [
        "handled completed 1 [False, 7]",
        "refuse failed 1 None",
        "sum completed 1 102",
    ]


def test_an_attempt_that_can_never_start_is_not_repeated(folder: Folder) -> None:
    folder.write(
        "main.py",
        """
        import threading
        from tasklib import TaskQueue
        queue = TaskQueue()

        if __name__ == "__main__":
            stop = threading.Event()

            @queue.task
            def register():
                queue.register_handler("closure", lambda: stop, isolation="process")

            worker = threading.Thread(target=queue.run, kwargs={"stop": stop, "poll_interval_seconds": 0.05})
            worker.start()
            queue.wait(register.submit(), timeout=180)
            task = queue.wait(queue.enqueue("closure", max_attempts=6), timeout=180)
            stop.set()
            worker.join()
            print(task.state, task.attempts)
            print(task.error)
        """,
    )

    said = folder.printed("main.py")
    assert said[0] == "failed 1"
    assert "is a lambda; define it at the top level of a module" in said[-1]


@pytest.mark.parametrize("command", [["-c", dedent(MAIN)], ["-"], ["-m", "package"]], ids=["-c", "stdin", "package"])
def test_a_function_that_was_read_from_no_module_is_refused_when_the_worker_starts(
    folder: Folder, command: list[str]
) -> None:
    folder.write("package/__main__.py", MAIN)
    done = folder.run(*command, input=dedent(MAIN))

    assert "task 'where' cannot run in a child process" in done.stderr
    assert "define it at the top level of a module that can be imported" in done.stderr


def nested() -> Callable[..., Any]:
    def inside() -> None: ...

    return inside


@pytest.mark.parametrize(
    "function, reason", [(nested(), "is defined inside another function"), (lambda: None, "is a lambda")]
)
def test_a_function_that_cannot_be_imported_is_refused_when_the_worker_starts(
    function: Callable[..., Any], reason: str
) -> None:
    with TaskQueue("sqlite:///:memory:") as queue:
        queue.register_handler("here", function, isolation="process")
        with pytest.raises(
            TaskDefinitionError, match=f"task 'here' cannot run in a child process, because .* {reason}"
        ):
            queue.process_batch()


HANDLERS = """
    import os
    def handle(payload):
        return [payload, os.getpid() != int(os.environ["PARENT"])]
"""


def test_a_handler_registered_by_the_main_script_is_found(folder: Folder) -> None:
    folder.write("handlers.py", HANDLERS)
    folder.write(
        "main.py",
        """
        import os
        from handlers import handle
        from tasklib import TaskQueue
        queue = TaskQueue()
        queue.register_handler("job", handle, isolation="process")
        if __name__ == "__main__":
            os.environ["PARENT"] = str(os.getpid())
            task_id = queue.enqueue("job", 5)
            queue.process_batch()
            print(queue.get(task_id).result)
        """,
    )

    assert folder.printed("main.py") == ["{'value': [5, True]}"]


def test_a_handler_registered_by_another_module_is_found_with_and_without_naming_that(folder: Folder) -> None:
    folder.write("handlers.py", HANDLERS)
    folder.write("house.py", "from tasklib import TaskQueue\nqueue = TaskQueue()")
    folder.write(
        "setup.py",
        """
        import handlers, house
        house.queue.register_handler("job", handlers.handle, isolation="process", max_retries=0)
        """,
    )
    folder.write(
        "main.py",
        """
        import asyncio, os, sys
        if __name__ == "__main__":
            import house, setup
            from tasklib.worker import Worker, WorkerSettings
            os.environ["PARENT"] = str(os.getpid())
            for modules in ((), ("setup",)):
                task_id = house.queue.enqueue("job", 5)
                async def run():
                    await Worker(house.queue, WorkerSettings(modules=modules)).run_once(None)
                asyncio.run(run())
                task = house.queue.get(task_id)
                print(task.result or task.error.splitlines()[-1])
        """,
    )

    assert folder.printed("main.py") == ["{'value': [5, True]}"] * 2


def test_tasks_of_the_default_queue_submit_to_the_workers_database(folder: Folder) -> None:
    folder.write(
        "jobs.py",
        """
        import tasklib
        @tasklib.task(isolation="process")
        async def first() -> str:
            return str(await tasklib.submit_task(second))
        @tasklib.task
        def second() -> None: ...
        """,
    )
    folder.write(
        "main.py",
        """
        import asyncio, os, tasklib, jobs
        if __name__ == "__main__":
            tasklib.init(os.environ["DATABASE_URL"])
            asyncio.run(tasklib.submit_task(jobs.first))
            tasklib.default_queue().process_batch()
            print(sorted((task.name, task.state.value) for task in tasklib.list_tasks()))
        """,
    )

    assert folder.printed("main.py") == ["[('first', 'completed'), ('second', 'completed')]"]


def test_a_program_with_tq_starts_no_worker_in_the_child(folder: Folder) -> None:
    folder.write(
        "jobs.py",
        """
        import os
        from tasklib import tq
        tq.init(os.environ["DATABASE_URL"], enable_worker=False)
        def handle(payload):
            return [tq.is_running(), payload]
        tq.queue.register_handler("job", handle, isolation="process")
        tq("other").set_worker(handle)
        """,
    )
    folder.write(
        "main.py",
        """
        import jobs
        from tasklib import tq
        if __name__ == "__main__":
            task_id = tq.queue.enqueue("job", 5)
            tq.queue.process_batch()
            task = tq.queue.get(task_id)
            print(task.result or task.error)
        """,
    )

    assert folder.printed("main.py") == ["{'value': [False, 5]}"]


BROKEN = """
    from tasklib import TaskQueue
    from tasklib.core.calls.import_guard import is_child
    queue = TaskQueue()

    {in_child}

    @queue.task(isolation="{isolation}", max_retries=0)
    def f() -> bool:
        return is_child()
"""
RUN_BROKEN = """
    import sqlite3
    import broken
    if __name__ == "__main__":
        task_id = broken.f.submit()
        with sqlite3.connect("tasks.db") as connection:
            connection.execute("UPDATE tasks SET lost_count = {lost_count}")
        connection.close()
        broken.queue.process_batch()
        task = broken.queue.get(task_id)
        print(task.state.value)
        print(task.result or task.error)
"""


@pytest.mark.parametrize(
    "in_child",
    [
        "if is_child(): raise OSError('not here')",
        "@queue.on_startup\n    def fail():\n        if is_child(): raise OSError('not here')",
    ],
    ids=["import", "start-up hook"],
)
def test_what_keeps_a_child_from_starting_is_told(folder: Folder, in_child: str) -> None:
    folder.write("broken.py", BROKEN.format(in_child=in_child, isolation="process"))
    folder.write("main.py", RUN_BROKEN.format(lost_count=0))

    state, *error = folder.printed("main.py")
    assert state == TaskState.FAILED
    assert error[0].endswith("its child process could not load the task: OSError: not here")
    assert error[-1] == "OSError: not here"
    assert any("broken.py" in line for line in error)


def test_a_suspect_that_no_child_can_load_runs_in_the_worker(folder: Folder) -> None:
    folder.write("broken.py", BROKEN.format(in_child="if is_child(): raise OSError('not here')", isolation="auto"))
    folder.write("main.py", RUN_BROKEN.format(lost_count=1))

    assert folder.printed("main.py") == ["completed", "{'value': False}"]
