"""tools/check_sql.py fails on what it is there for, and on nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_sql import find_problems

GET = "-- name: get_task\n-- One task by its id.\nSELECT {columns} FROM %stasks WHERE id = :id%s;\n"
COLUMNS = "-- fragment: columns\nid, name\n"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A storage folder without faults."""
    write(tmp_path, "postgres/migrations/0001_initial.sql", "CREATE TABLE {schema}.tasks (id uuid, name text);")
    write(tmp_path, "sqlite/migrations/0001_initial.sql", "CREATE TABLE tasks (id TEXT, name TEXT);")
    write(tmp_path, "postgres/sql/tasks.sql", COLUMNS + GET % ("{schema}.", "::uuid"))
    write(tmp_path, "sqlite/sql/tasks.sql", COLUMNS + GET % ("", ""))
    return tmp_path


def write(storage: Path, name: str, text: str) -> None:
    path = storage / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_matching_files_pass(storage: Path) -> None:
    assert find_problems(storage) == []


@pytest.mark.parametrize(
    "file, text, message",
    [
        ("postgres/sql/tasks.sql", GET % ("", ""), "PostgreSQL: syntax error"),
        ("postgres/migrations/0002_more.sql", "CREATE TABEL x ();", "PostgreSQL: syntax error"),
        ("sqlite/migrations/0002_more.sql", "CREATE TABEL x ();", "SQLite: near"),
        (
            "sqlite/sql/tasks.sql",
            GET.replace("{columns}", "colour") % ("", ""),
            "SQLite: no such column: colour",
        ),
        ("sqlite/sql/tasks.sql", "", "get_task is missing for SQLite"),
        ("sqlite/sql/other.sql", "-- name: ping\n-- Answer.\nSELECT 1;", "ping is missing for PostgreSQL"),
        (
            "sqlite/sql/tasks.sql",
            COLUMNS + GET % ("", " AND name = :name"),
            "get_task takes name, for PostgreSQL it does not",
        ),
        (
            "sqlite/sql/tasks.sql",
            COLUMNS + (GET % ("", "")).replace("-- One task by its id.\n", ""),
            "get_task has no line of purpose under its name",
        ),
    ],
)
def test_fault_is_found(storage: Path, file: str, text: str, message: str) -> None:
    write(storage, file, text)
    assert message in "\n".join(problem.message for problem in find_problems(storage))


def test_a_difference_with_a_reason_passes(storage: Path) -> None:
    write(
        storage,
        "sqlite/sql/other.sql",
        "-- name: ping\n-- Answer.\n-- Only here: it is the fault line.\nSELECT 1;",
    )
    assert find_problems(storage) == []


def test_each_step_of_a_statement_is_prepared(storage: Path) -> None:
    two_steps = "DELETE FROM tasks WHERE id = :id;\nSELECT ';' FROM nowhere;"
    write(storage, "sqlite/sql/tasks.sql", f"-- name: get_task\n-- Two.\n{two_steps}\n")
    assert [problem.message for problem in find_problems(storage)] == ["SQLite: no such table: nowhere, in get_task"]


def test_a_statement_that_is_defined_twice_is_found(storage: Path) -> None:
    write(storage, "sqlite/sql/other.sql", GET % ("", ""))
    assert "name get_task is defined twice" in find_problems(storage)[0].message
