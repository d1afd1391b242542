"""Long work shows a progress bar on a terminal, and nothing of it anywhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures.terminal import Terminal
from tests.integration.cli.conftest import CommandLine, Ran


def submit(url: str, folder: Path) -> list[str]:
    (folder / "tasks.jsonl").write_text('{"name": "job"}\n' * 3)
    return ["submit", "--file", str(folder / "tasks.jsonl")]


def clean_up(url: str, folder: Path) -> list[str]:
    return ["cleanup", "--older-than", "0s", "--state", "cancelled"]


def delete(url: str, folder: Path) -> list[str]:
    return ["delete", "--all-matching", "--state", "cancelled", "--yes"]


def copy(url: str, folder: Path) -> list[str]:
    return ["copy", url, f"sqlite:///{folder / 'copy.db'}"]


def bench(url: str, folder: Path) -> list[str]:
    return ["bench", "--tasks", "100"]


LONG = {
    "Submitting": (submit, "Submitted 3 tasks."),
    "Cleaning up": (clean_up, "Deleted 3 tasks."),
    "Deleting tasks": (delete, "Deleted: 3 tasks."),
    "Copying": (copy, "Copied 3 of 3 tasks"),
    "Measuring": (bench, "wake an idle worker"),
}


@pytest.mark.parametrize("title", LONG)
@pytest.mark.backends("sqlite-file")
def test_long_work_shows_a_bar_on_a_terminal(database_url: str, tmp_path: Path, title: str) -> None:
    prepare, answer = LONG[title]
    three_cancelled(database_url)
    arguments = [*prepare(database_url, tmp_path), "--database-url", database_url]
    terminal = Terminal([sys.executable, "-m", "tasklib", *arguments])
    assert terminal.wait() == 0, terminal.text
    assert title in terminal.text
    assert "100%" in terminal.text
    assert answer in terminal.text


@pytest.mark.backends("sqlite-file")
def test_nothing_of_it_is_anywhere_else(tasklib: CommandLine, tmp_path: Path) -> None:
    three_cancelled(tasklib.url)
    assert tasklib.run(*clean_up(tasklib.url, tmp_path)) == Ran(0, "Deleted 3 tasks.\n", "")


def three_cancelled(url: str) -> None:
    with TaskQueue(url) as queue:
        for _ in range(3):
            queue.cancel(queue.enqueue("job"))
