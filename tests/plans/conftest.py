"""Tables to crowd: as many as a test wants, each in a schema or a file of its own, gone after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.plans.postgres import PostgresTable
from tests.plans.sqlite import SqliteTable


@pytest.fixture
def new_postgres(lone_postgres_url: str) -> Iterator[Callable[[], PostgresTable]]:
    """Makes empty tables in one database."""
    made: list[PostgresTable] = []

    def make() -> PostgresTable:
        made.append(PostgresTable(lone_postgres_url, number=len(made)))
        return made[-1]

    yield make
    for table in made:
        table.close()


@pytest.fixture
def new_sqlite(tmp_path: Path) -> Iterator[Callable[[], SqliteTable]]:
    """Makes empty files."""
    made: list[SqliteTable] = []

    def make() -> SqliteTable:
        made.append(SqliteTable(tmp_path / f"tasks-{len(made)}.db"))
        return made[-1]

    yield make
    for table in made:
        table.close()
    # A gigabyte in the folder of the test run is not worth keeping.
    for path in tmp_path.glob("tasks-*"):
        path.unlink()
