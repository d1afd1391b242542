"""A SQLite queue holds every argument and secret: its files are for their owner alone, or as shared as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklib import TaskQueue


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """What many containers have: new files are for everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def rights(folder: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in sorted(folder.iterdir())}


def test_new_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with TaskQueue(f"sqlite:///{tmp_path}/tasks.db") as queue:
        queue.enqueue("job", {"password": "x"})
        files = ("tasks.db", "tasks.db-lock", "tasks.db-shm", "tasks.db-wal")
        assert rights(tmp_path) == dict.fromkeys(files, "0o600")


def test_a_file_that_is_shared_stays_shared(tmp_path: Path) -> None:
    shared = tmp_path / "tasks.db"
    shared.touch()
    shared.chmod(0o660)
    with TaskQueue(f"sqlite:///{shared}") as queue:
        queue.enqueue("job")
        assert set(rights(tmp_path).values()) == {"0o660"}
