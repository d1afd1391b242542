"""A SQLite file that is deleted or replaced while it is open: nothing is acknowledged that nobody will find."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasklib import Config, DatabaseReplaced, TaskQueue
from tasklib.doctor import examine
from tests.fixtures import python
from tests.fixtures.waiting import eventually
from tests.programs.processes import working


@pytest.fixture
def path(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


@pytest.fixture
def queue(sqlite_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(sqlite_url) as queue:
        queue.enqueue("before")
        yield queue


def delete(path: Path) -> None:
    path.rename(path.with_name("kept"))


def delete_everything(path: Path) -> None:
    for each in list(path.parent.glob("tasks.db*")):
        each.rename(path.with_name(each.name.replace("tasks.db", "kept")))


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").rename(path.with_name("kept"))


def delete_index(path: Path) -> None:
    Path(f"{path}-shm").rename(path.with_name("kept"))


def replace(path: Path) -> None:
    with TaskQueue(f"sqlite:///{path}.new") as other:
        other.migrate()
    path.rename(path.with_name("kept"))
    Path(f"{path}.new").rename(path)


def restore(path: Path) -> None:
    path.with_name("kept").rename(path)


@pytest.mark.parametrize("lose", [delete, delete_everything, delete_log, delete_index, replace])
def test_submitting_and_reading_are_refused_with_the_remedy(queue: TaskQueue, path: Path, lose: Callable[[Path], None]):
    lose(path)

    for use in (lambda: queue.enqueue("lost"), queue.count, lambda: queue.add_schedule("s", task="t", every=60)):
        with pytest.raises(DatabaseReplaced, match=r"put the old file back, or restart"):
            use()
    queue.close()
    with TaskQueue(f"sqlite:///{path}") as again:
        if lose in (delete_log, delete_index):  # SQLite has the old ones until the process ends
            with pytest.raises(DatabaseReplaced):
                again.enqueue("found")
            return
        again.enqueue("found")
        assert again.count(name="lost") == 0


def test_the_file_put_back_is_used_again(queue: TaskQueue, path: Path):
    delete(path)
    with pytest.raises(DatabaseReplaced, match="was deleted while"):
        queue.enqueue("lost")
    restore(path)

    queue.enqueue("after")
    assert {task.name for task in queue.list()} == {"before", "after"}


def test_a_worker_says_so_and_goes_on_when_the_file_is_back(
    queue: TaskQueue, path: Path, caplog: pytest.LogCaptureFixture
):
    queue.register_handler("before", lambda payload: None)
    with caplog.at_level(logging.WARNING), working(queue):
        eventually(lambda: queue.count(state="completed") == 1)
        replace(path)
        eventually(lambda: "was replaced by another" in caplog.text and "or restart this program" in caplog.text)
        restore(path)
        eventually(lambda: queue.enqueue("before").created)
        eventually(lambda: queue.count(state="completed") == 2)


@pytest.mark.parametrize("lose, says", [(delete, "was deleted"), (replace, "was replaced by another")])
def test_the_doctor_finds_it_and_makes_no_new_file(
    queue: TaskQueue, path: Path, lose: Callable[[Path], None], says: str
):
    config = Config(database_url=f"sqlite:///{path}")
    assert "replaced-file" not in {found.code for found in examine(config)}
    lose(path)
    was_there = path.exists()

    (found,) = examine(config)

    assert (found.code, says in found.text) == ("replaced-file", True)
    assert "restart every program" in found.remedy
    assert path.exists() == was_there


@pytest.mark.parametrize("lose", [delete_index, replace])
def test_what_others_commit_survives_the_end_of_a_process_that_has_the_old_files(
    sqlite_url: str, path: Path, lose: Callable[[Path], None]
):
    """SQLite alone would let it write over their log, or delete it, at the latest when it closes."""
    program = f"""
import sys
from tasklib import TaskQueue
queue = TaskQueue({sqlite_url!r})
for line in sys.stdin:
    try:
        queue.enqueue(line.strip())
        print("stored", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""

    def start() -> subprocess.Popen[str]:
        return python.popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(process: subprocess.Popen[str], name: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    with start() as old:
        assert ask(old, "before") == "stored"
        lose(path)
        with start() as new:
            answers = [(ask(old, "old"), ask(new, "new")) for _ in range(3)]
            new.communicate(timeout=180)
        old.communicate(timeout=180)

    assert answers == [("DatabaseReplaced", "stored")] * 3
    with TaskQueue(sqlite_url) as restarted:
        assert (restarted.count(name="old"), restarted.count(name="new")) == (0, 3)
