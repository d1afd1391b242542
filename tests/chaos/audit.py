"""What the database saw, written by triggers of the test's own: no code of tasklib's is asked about itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

from tests.fixtures.backends import libpq_url

SQLITE = """
CREATE TABLE chaos_effects (task_id TEXT NOT NULL);
CREATE TABLE chaos_completions (task_id TEXT NOT NULL);
CREATE TRIGGER chaos_completed AFTER UPDATE ON tasks WHEN new.state = 'completed' AND old.state <> 'completed'
BEGIN INSERT INTO chaos_completions VALUES (new.id); END;
"""
POSTGRES = """
CREATE TABLE chaos_effects (task_id uuid NOT NULL);
CREATE TABLE chaos_completions (task_id uuid NOT NULL);
CREATE FUNCTION chaos_completed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
$$ BEGIN INSERT INTO chaos_completions VALUES (new.id); RETURN NULL; END $$;
CREATE TRIGGER chaos_completed AFTER UPDATE ON tasks FOR EACH ROW
WHEN (new.state = 'completed' AND old.state <> 'completed') EXECUTE FUNCTION chaos_completed();
"""


class Audit:
    """Every completion the database accepted, and every effect that tasks have had in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        with self._connection() as connection:
            if isinstance(connection, sqlite3.Connection):
                connection.executescript(SQLITE)
            else:
                connection.execute(POSTGRES.encode())

    def completions(self) -> list[UUID]:
        """The tasks whose completion was accepted, each as often as it was."""
        return self._column("SELECT task_id FROM chaos_completions")

    def effects(self) -> list[UUID]:
        """The tasks that had an effect, each as often as it had."""
        return self._column("SELECT task_id FROM chaos_effects")

    def versions(self) -> dict[UUID, int]:
        """The claim by which each task was completed."""
        with self._connection() as connection:
            rows = connection.execute("SELECT id, version FROM tasks WHERE state = 'completed'").fetchall()
        return {UUID(str(task_id)): version for task_id, version in rows}

    def _column(self, query: str) -> list[UUID]:
        with self._connection() as connection:
            return [UUID(str(row[0])) for row in connection.execute(query).fetchall()]

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        if self._url.startswith("sqlite"):
            connection: Any = sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
        else:
            connection = psycopg.connect(libpq_url(self._url), autocommit=True)
        try:
            yield connection
        finally:
            connection.close()
