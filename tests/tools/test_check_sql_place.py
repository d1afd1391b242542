"""tools/check_sql_place.py fails on what it is there for, and on nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_sql_place import find_problems


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "tasklib"
    (folder / "storage").mkdir(parents=True)
    return folder


def messages(package: Path, file: str, text: str) -> list[str]:
    (package / file).write_text(text)
    return [problem.message for problem in find_problems(package)]


@pytest.mark.parametrize(
    "text",
    [
        '"SELECT 1"',
        'f"UPDATE {table} SET x = 1"',
        '"""\n    WITH a AS (SELECT 1) TABLE a"""[0]',
        '"delete from t"',
    ],
)
def test_sql_outside_storage_fails(package: Path, text: str) -> None:
    assert messages(package, "queue.py", f"x = {text}")[0].startswith("SQL outside storage/")


@pytest.mark.parametrize(
    "file, text",
    [
        ("storage/base.py", 'x = "SELECT 1"'),
        ("queue.py", '"""SELECT in a docstring is prose."""\nx = "Select a task from the list"'),
    ],
)
def test_what_is_allowed_passes(package: Path, file: str, text: str) -> None:
    assert messages(package, file, text) == []
