"""What the seeds' tests share: a look at the table from outside, workers in the background, and a table's columns."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg

from tasklib import ManualClock, Task, TaskQueue, TaskWorker
from tests.fixtures.backends import libpq_url

SEED_COLUMNS = {
    "id": "UUID",
    "name": "VARCHAR",
    "state": "VARCHAR",
    "scheduled_at": "TIMESTAMP",
    "started_at": "TIMESTAMP",
    "completed_at": "TIMESTAMP",
    "created_at": "TIMESTAMP",
    "args": "JSONB",
    "kwargs": "JSONB",
    "result": "JSONB",
    "error": "TEXT",
    "retry_count": "INTEGER",
    "max_retries": "INTEGER",
    "next_retry_at": "TIMESTAMP",
    "worker_id": "VARCHAR",
    "locked_until": "TIMESTAMP",
    "timeout_seconds": "INTEGER",
    "priority": "INTEGER",
    "tags": "JSONB",
}
"""Seed 000 and 001: every column of the table, with the type printed there."""

COMPATIBLE = {
    "postgres": {
        "UUID": {"uuid"},
        "VARCHAR": {"text"},
        "TEXT": {"text"},
        "TIMESTAMP": {"timestamp with time zone"},
        "JSONB": {"jsonb"},
        # timeout_seconds may be a fraction; every other number is whole.
        "INTEGER": {"integer", "double precision"},
    },
    "sqlite": {
        "UUID": {"TEXT"},
        "VARCHAR": {"TEXT"},
        "TEXT": {"TEXT"},
        "TIMESTAMP": {"TEXT"},
        "JSONB": {"TEXT"},
        "INTEGER": {"INTEGER", "REAL"},
    },
}
"""The types that keep every value of a seed's type."""


class Shell:
    """A connection of its own to the queue's database, as psql or the sqlite3 program would have.

    A database in memory has no outside: there it is the queue's own connection.
    """

    def __init__(self, queue: TaskQueue) -> None:
        self._sqlite: sqlite3.Connection | None = None
        self._postgres: psycopg.Connection[Any] | None = None
        self._owned = not queue.config.database_url.endswith(":memory:")
        database: Any = queue.database
        queue.stats()  # makes the tables
        if not queue.config.is_sqlite:
            self._postgres = psycopg.connect(libpq_url(url_of(queue)), autocommit=True)
        elif self._owned:
            self._sqlite = sqlite3.connect(url_of(queue).removeprefix("sqlite:///"), isolation_level=None)
        else:
            self._sqlite = database._opened()

    @property
    def dialect(self) -> str:
        return "postgres" if self._sqlite is None else "sqlite"

    def run(self, statement: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement, or [(number of rows changed,)] if it has none."""
        cursor = self._cursor(statement, params)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else [(cursor.rowcount,)]

    def choose(self, *, postgres: str, sqlite: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run whichever form belongs to this database."""
        return self.run(postgres if self.dialect == "postgres" else sqlite, params)

    def script(self, statements: str) -> None:
        """Run several statements."""
        if self._sqlite is not None:
            self._sqlite.executescript(statements)
        else:
            assert self._postgres is not None
            self._postgres.execute(statements.encode())

    def columns(self) -> Mapping[str, tuple[str, bool, str | None]]:
        """Each column of `tasks`: its type, whether it may be null, and its default."""
        rows = self.choose(
            postgres="SELECT column_name, data_type, is_nullable = 'YES', column_default"
            " FROM information_schema.columns WHERE table_name = 'tasks' AND table_schema = current_schema()",
            sqlite="SELECT name, type, \"notnull\" = 0, dflt_value FROM pragma_table_xinfo('tasks')",
        )
        return {name: (kind, bool(nullable), default) for name, kind, nullable, default in rows}

    def close(self) -> None:
        if self._owned:
            (self._sqlite or self._postgres).close()  # type: ignore[union-attr]

    def _cursor(self, statement: str, params: Sequence[Any]) -> Any:
        if self._sqlite is not None:
            return self._sqlite.execute(statement, params)
        assert self._postgres is not None
        return self._postgres.execute(statement.encode(), params or None)


def url_of(queue: TaskQueue) -> str:
    """The queue's URL as it would be given to another program."""
    config = queue.config
    return config.database_url if config.db_schema is None else f"{config.database_url}?schema={config.db_schema}"


@asynccontextmanager
async def working(*workers: TaskWorker) -> AsyncIterator[None]:
    """The workers run while the block does, and have stopped in order after it."""
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)


def read(queue: TaskQueue, task_id: UUID) -> Task:
    """The task, which must exist."""
    task = queue.get(task_id)
    assert task is not None
    return task


def advance(queue: TaskQueue, seconds: float = 0.0, **parts: float) -> None:
    """Move the queue's clock."""
    assert isinstance(queue.clock, ManualClock)
    queue.clock.advance(seconds, **parts)


def fail(payload: Any) -> None:
    """A handler that never succeeds."""
    raise ValueError("Fail")


class FailsAtFirst:
    """A handler that fails a number of times, and then returns."""

    def __init__(self, times: int, result: Any = None) -> None:
        self.attempts = 0
        self._times = times
        self._result = result

    def __call__(self, payload: Any) -> Any:
        self.attempts += 1
        if self.attempts <= self._times:
            raise RuntimeError(f"Fail {self.attempts}")
        return self._result


def states_of(queue: TaskQueue, handler: Callable[[Any], Any], *, max_attempts: int) -> list[str]:
    """The states a task of this handler goes through until it ends, as the handler and the table show them."""
    seen: list[str] = []

    def watched(task: Task) -> Any:
        seen.append(task.state)
        return handler(task.payload)

    queue.register_handler("walk", watched)
    task_id = queue.enqueue("walk", max_attempts=max_attempts)
    seen.append(read(queue, task_id).state)
    while read(queue, task_id).completed_at is None:
        queue.process_batch()
        seen.append(read(queue, task_id).state)
        advance(queue, hours=7)
    return seen


OpenShell = Callable[[TaskQueue], Shell]
"""What the fixture `shell` gives."""
