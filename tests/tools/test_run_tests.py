"""Where `make test` keeps temporary files: in memory if there is room, and nowhere after the run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tools import run_tests


@pytest.fixture
def untold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as memory, with room enough, where nobody has named another."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(run_tests, "MEMORY", tmp_path)
    monkeypatch.setattr(run_tests, "ENOUGH", 1)
    return tmp_path


def test_in_memory_where_there_is_room(untold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_tests.has_room_in_memory(["tests/unit", "-q"])
    monkeypatch.setattr(run_tests, "ENOUGH", 1 << 62)
    assert not run_tests.has_room_in_memory(["tests/unit", "-q"])
    monkeypatch.setattr(run_tests, "MEMORY", untold / "missing")
    assert not run_tests.has_room_in_memory([])


def test_on_the_disk_for_long_tests_and_where_somebody_says_so(untold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run_tests.has_room_in_memory(["-m", "chaos and not alone"])
    monkeypatch.setenv("TMPDIR", str(untold))
    assert not run_tests.has_room_in_memory([])


def test_they_go_with_the_run(untold: Path) -> None:
    with run_tests.temporary_files_in(untold) as folder:
        (Path(tempfile.mkdtemp()) / "file").touch()
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder)
        assert len(list(folder.glob("*/file"))) == 1
    assert list(untold.iterdir()) == []
    assert tempfile.gettempdir() != str(folder)
