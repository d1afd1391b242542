"""Making and removing our tables on a connection of the caller, in its transaction: for the migrations of a framework.

The steps and their ledger are those of `postgres/schema.py` and `sqlite/schema.py`, so that it makes no difference who
has made the tables.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasklib.errors import ForeignTable
from tasklib.storage.enlist import database_of, sending
from tasklib.storage.migrate import LEDGER, Applied, Migration, made_by_migrations, migrations, missing, script
from tasklib.storage.statement import Row

Send = Callable[[str, Any], Sequence[Row]]


def migrate_on(connection: Any, *, up_to: int | None = None, schema: str | None = None) -> list[str]:
    """Apply the migrations that are missing, up to a number if one is given; the caller commits them.

    On PostgreSQL in the schema given, which is made if it is not there, else in that of the connection.  Returns the
    names of those applied: none if the tables are there already.
    """
    tables = _tables_on(connection, schema)
    tables.lock()
    pending = missing(tables.dialect, tables.applied(), "this database", "start over without their tasks")
    chosen = [each for each in pending if up_to is None or each.version <= up_to]
    for migration in chosen:
        tables.apply(migration)
    return [migration.name for migration in chosen]


def script_on(connection: Any) -> str:
    """What `migrate_on` would run now, as one text without a transaction of its own; empty if nothing is missing."""
    tables = _tables_on(connection)
    pending = missing(tables.dialect, tables.applied(), "this database", "start over without their tasks")
    return script_for(tables.dialect, pending=pending)


def script_for(dialect: str, schema: str | None = None, pending: Sequence[Migration] | None = None) -> str:
    """Migrations, by default all, as one text, for a framework that writes SQL for later."""
    chosen = migrations(dialect) if pending is None else pending
    if dialect == "sqlite":
        from tasklib.storage.sqlite.schema import CREATE_LEDGER

        return script(chosen, CREATE_LEDGER, begin=None, fill=lambda text: text.replace("{schema}.", ""))
    from tasklib.storage.dialects.postgres import PostgresDialect
    from tasklib.storage.postgres.schema import CREATE_LEDGER as LEDGER_ON_POSTGRES

    create = "" if schema is None else "CREATE SCHEMA IF NOT EXISTS {schema};\n"
    fill = PostgresDialect(schema or "public").fill
    return script(chosen, create + LEDGER_ON_POSTGRES, begin=None, fill=fill)


def drop_on(connection: Any) -> None:
    """Remove every table, function, sequence and domain of ours, with all tasks; the caller commits that."""
    tables = _tables_on(connection)
    if not tables.applied():
        return
    for kind in ("TABLE", "FUNCTION", "SEQUENCE", "DOMAIN"):
        for name in reversed(made_by_migrations(tables.dialect, kind)):
            tables.drop(kind, name)
    tables.drop("TABLE", LEDGER)


def prepare_claims_on(connection: Any) -> None:
    """Give a SQLite connection the temporary tables that claims work with; others need none."""
    if database_of(connection) == "sqlite":
        script = (Path(__file__).parent / "sqlite" / "connection.sql").read_text("utf-8")
        send = sending(connection)
        for statement in re.findall(r"^CREATE TEMPORARY TABLE .*;$", script, re.MULTILINE):
            send(statement, None)  # its settings stay as the caller has them


def schema_on(connection: Any) -> str:
    """The schema in which a PostgreSQL connection creates tables."""
    (row,) = sending(connection)("SELECT current_schema() AS name", None)
    name: str = row["name"]
    return name


class _Tables:
    """Our tables, as one kind of database needs them to be made."""

    dialect: str

    def __init__(self, send: Send) -> None:
        self.send = send

    def lock(self) -> None:
        """Wait for others that make them."""

    def applied(self) -> Mapping[int, Applied]:
        """What is recorded, by version; a foreign table in our place is an error."""
        names = {row["name"] for row in self.send(self.list_tables, self.where)}
        if LEDGER in names:
            return {row["version"]: Applied(row["min_compatible"], row["checksum"]) for row in self._ledger()}
        if "tasks" in names:
            raise ForeignTable(
                "the database already has a table `tasks` that is not tasklib's; it was not touched; give tasklib "
                "another database or schema"
            )
        return {}

    def apply(self, migration: Migration) -> None:
        """Run one migration and record it."""
        if migration.version == 1:
            self.run(self.ledger)
        self.run(migration.text)
        self.send(
            self.fill(
                "INSERT INTO {schema}tasklib_migrations (version, name, min_compatible, checksum)"
                " VALUES (:version, :name, :oldest, :checksum)"
            ),
            {
                "version": migration.version,
                "name": migration.name,
                "oldest": migration.min_compatible,
                "checksum": migration.checksum,
            },
        )

    def _ledger(self) -> Sequence[Row]:
        return self.send(self.fill("SELECT version, min_compatible, checksum FROM {schema}tasklib_migrations"), None)

    list_tables: str
    where: Mapping[str, str] | None = None
    """The parameters of `list_tables`."""
    ledger: str

    def fill(self, text: str) -> str:
        """The text with the schema in its place."""
        raise NotImplementedError

    def run(self, text: str) -> None:
        """Send all statements of a migration."""
        raise NotImplementedError

    def drop(self, kind: str, name: str) -> None:
        """Remove a table, function, sequence or domain if it is there."""
        raise NotImplementedError


class _Postgres(_Tables):
    dialect = "postgres"
    list_tables = (
        "SELECT c.relname AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = :schema AND c.relname IN ('tasklib_migrations', 'tasks')"
    )

    def __init__(self, send: Send, schema: str) -> None:
        super().__init__(send)
        from tasklib.storage.dialects.postgres import PostgresDialect
        from tasklib.storage.postgres.schema import CREATE_LEDGER

        self._dialect = PostgresDialect(schema)
        self.where = {"schema": schema}
        self.ledger = CREATE_LEDGER

    def lock(self) -> None:
        from tasklib.storage.postgres.schema import LOCK_KEY

        self.send("SELECT pg_advisory_xact_lock(:key)", {"key": LOCK_KEY})
        if not self.send("SELECT nspname FROM pg_namespace WHERE nspname = :schema", self.where):
            self.send(self._dialect.fill("CREATE SCHEMA {schema}"), None)

    def fill(self, text: str) -> str:
        return text.replace("{schema}", f"{self._dialect.quoted_schema}.")

    def run(self, text: str) -> None:
        self.send(self._dialect.fill(text), None)

    def drop(self, kind: str, name: str) -> None:
        self.send(self.fill(f"DROP {kind} IF EXISTS {{schema}}{name} CASCADE"), None)


class _Sqlite(_Tables):
    dialect = "sqlite"

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        from tasklib.storage.sqlite.schema import CREATE_LEDGER, LIST_NAMES

        self.ledger, self.list_tables = CREATE_LEDGER, LIST_NAMES

    def fill(self, text: str) -> str:
        return text.replace("{schema}", "")

    def run(self, text: str) -> None:
        # One by one: `executescript` would commit the caller's transaction first.
        for statement in _statements(text):
            self.send(statement, None)

    def drop(self, kind: str, name: str) -> None:
        self.send(f"DROP {kind} IF EXISTS {name}", None)


def _tables_on(connection: Any, schema: str | None = None) -> _Tables:
    send = sending(connection)
    if database_of(connection) == "sqlite":
        return _Sqlite(send)
    return _Postgres(send, schema or schema_on(connection))


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; those of a trigger's body belong to it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
