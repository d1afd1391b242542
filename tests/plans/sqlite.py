"""One SQLite file, with eyes for the work its statements make: the steps of SQLite's own machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from tasklib.core.time.clock import DatabaseClock
from tasklib.storage.dialects.sqlite import bind, execute, parts, translate
from tasklib.storage.operations.claims import Claim, claim_tasks
from tasklib.storage.operations.workers import Registration, register_worker
from tasklib.storage.run import run_blocking, steps
from tasklib.storage.sqlite import database, schema
from tasklib.storage.statement import Operation, Statement, T, load_sql
from tests.plans.crowd import KINDS, SQLITE, one_statement


class SqliteTable:
    """The task table of one file, which no test needs after a crash."""

    def __init__(self, path: Path | str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        for pragma in ("journal_mode = WAL", "synchronous = OFF", "cache_size = -200000"):
            self.connection.execute(f"PRAGMA {pragma}")
        schema.migrate(self.connection)
        self.connection.executescript(database._CONNECTION_SQL)
        self.instance = self.register()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation as the library does."""
        return run_blocking(steps(operation, translate, DatabaseClock()), self._execute)

    def register(self) -> UUID:
        instance = uuid4()
        self.run(register_worker(Registration(instance, "worker-1", "here", 1, 30.0, 10, ())))
        return instance

    def fill(self, kind: str, rows: int) -> None:
        # The rows keep every rule; asking for each of a million would take most of the time.
        self.connection.execute("PRAGMA ignore_check_constraints = ON")
        self.connection.execute(SQLITE, {**KINDS[kind].parameters, "rows": rows})
        self.connection.execute("PRAGMA ignore_check_constraints = OFF")

    def claim(self, names: list[str], limit: int, *, keyed: bool = False) -> Operation[Any]:
        return claim_tasks(
            Claim(
                instance=self.instance,
                worker_id="worker-1",
                names=names,
                limit=limit,
                lease_seconds=60.0,
                held=[],
                keyed=keyed,
                limited=keyed,
            )
        )

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens inside has not happened."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def steps(self, make: Statement | Callable[[], Operation[Any]]) -> int:
        """Run the (first) statement, undo it, and say how many steps of SQLite's machine it took.

        Every row visited takes some, whether it is used or not, and their number is the same in every run.
        """
        operation = one_statement(make) if isinstance(make, Statement) else make()
        statement = next(steps(operation, translate, DatabaseClock()))
        bound = bind(statement.params)
        taken = 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        with self.undone():
            self.connection.set_progress_handler(step, 1)
            try:
                for part in parts(statement.name):
                    self.connection.execute(part, bound).fetchall()
            finally:
                self.connection.set_progress_handler(None, 0)
        return taken

    def steps_of_all(self, operation: Operation[Any]) -> int:
        """Run a whole operation, and say how many steps all its statements took."""
        taken = 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        self.connection.set_progress_handler(step, 1)
        try:
            self.run(operation)
        finally:
            self.connection.set_progress_handler(None, 0)
        return taken

    def _execute(self, statement: Statement) -> list[dict[str, Any]]:
        if statement.name in load_sql("sqlite"):
            return execute(self.connection, statement.name, statement.params)
        self.connection.execute({"begin": "BEGIN IMMEDIATE"}.get(statement.name, statement.name))
        return []

    def analyze(self) -> None:
        self.connection.execute("ANALYZE")

    def forget_statistics(self) -> None:
        """Leave the planner where it is when nobody has ever looked into the table."""
        self.connection.execute("DELETE FROM sqlite_stat1")
        self.connection.execute("ANALYZE sqlite_schema")

    def close(self) -> None:
        self.connection.close()
