"""Checking and migrating the tables of a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from tasklib.errors import ForeignTable, SchemaMissing, SchemaOutdated
from tasklib.storage.migrate import Applied, Migration, missing, script

CREATE_LEDGER = """
CREATE TABLE IF NOT EXISTS tasklib_migrations (
    version        INTEGER NOT NULL PRIMARY KEY,
    name           TEXT    NOT NULL,
    min_compatible INTEGER NOT NULL,
    checksum       TEXT    NOT NULL DEFAULT '',
    applied_at     TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
);
"""
# Tables, views and indexes share their names, and `Tasks` is the same name as `tasks`.
LIST_NAMES = "SELECT lower(name) AS name FROM sqlite_master WHERE type <> 'trigger'"


def needs_migration(connection: sqlite3.Connection, *, allowed: bool) -> bool:
    """Whether migrations are missing; if they are and are not allowed, that is an error."""
    applied = _applied(connection)
    pending = _missing(applied)
    if pending and not allowed:
        kind, state = (SchemaOutdated, "is outdated") if applied else (SchemaMissing, "has no tasklib tables")
        raise kind(f"the SQLite file {state} (missing: {', '.join(m.name for m in pending)}); run `tasklib migrate`")
    return bool(pending)


def migration_script(connection: sqlite3.Connection) -> str:
    """What `migrate` would run, as a text for the program sqlite3."""
    pending = _missing(_applied(connection))
    return script(pending, CREATE_LEDGER, begin="BEGIN IMMEDIATE;", fill=lambda text: text.replace("{schema}.", ""))


def migrate(connection: sqlite3.Connection) -> list[str]:
    """Apply what is missing, each migration as a whole; the caller holds the writer's turn."""
    applied = []
    for migration in _missing(_applied(connection)):
        _apply(connection, migration)
        applied.append(migration.name)
    return applied


def _missing(applied: Mapping[int, Applied]) -> Sequence[Migration]:
    return missing("sqlite", applied, "the SQLite file", "move the file away and start over without its tasks")


def _applied(connection: sqlite3.Connection) -> Mapping[int, Applied]:
    names = {row[0] for row in connection.execute(LIST_NAMES)}
    if "tasklib_migrations" in names:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(tasklib_migrations)")}
        checksum = "checksum" if "checksum" in columns else "NULL"
        rows = connection.execute(f"SELECT version, min_compatible, {checksum} FROM tasklib_migrations")  # noqa: S608
        return {version: Applied(*rest) for version, *rest in rows}
    if "tasks" in names:
        raise ForeignTable(
            "the SQLite file already has a table `tasks` that is not tasklib's; it was not touched; "
            "use another file, for example sqlite:///tasklib.db"
        )
    return {}


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    ledger = CREATE_LEDGER if migration.version == 1 else ""
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{ledger}\n{migration.text}")
        connection.execute(
            "INSERT INTO tasklib_migrations (version, name, min_compatible, checksum) VALUES (?, ?, ?, ?)",
            (migration.version, migration.name, migration.min_compatible, migration.checksum),
        )
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
