"""Finding, checking and migrating the tables of one schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection
from psycopg import errors as pg

from tasklib.core.config import Config
from tasklib.errors import ForeignTable, SchemaError, SchemaMissing, SchemaOutdated
from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.migrate import Applied, Migration, missing, script

LOCK_KEY = 7281956340277
DDL_TRIES = 10

CREATE_LEDGER = """
CREATE TABLE IF NOT EXISTS {schema}.tasklib_migrations (
    version        integer     NOT NULL PRIMARY KEY,
    name           text        NOT NULL,
    min_compatible integer     NOT NULL,
    checksum       text        NOT NULL DEFAULT '',
    applied_at     timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE {schema}.tasklib_migrations IS 'Which migrations made these tables.';
COMMENT ON COLUMN {schema}.tasklib_migrations.min_compatible IS 'the oldest code that works on them';
COMMENT ON COLUMN {schema}.tasklib_migrations.checksum IS 'SHA-256 of the migration without its comments';
"""


def current_schema(connection: Connection[Any], config: Config) -> str:
    """The schema chosen, or the one the connection's search_path puts first."""
    if config.db_schema is not None:
        return config.db_schema
    row = connection.execute("SELECT current_schema()").fetchone()
    if row is None or row[0] is None:
        raise SchemaError(
            "the connection's search_path names no schema that exists; choose one with ?schema=NAME in the URL"
        )
    name: str = row[0]
    return name


def migration_script(connection: Connection[Any], dialect: PostgresDialect) -> str:
    """What `ensure_schema` would run to migrate, as a text for psql."""
    exists = "SELECT FROM pg_namespace WHERE nspname = %s"
    is_there = connection.execute(exists, (dialect.schema,)).fetchone() is not None
    ledger = CREATE_LEDGER if is_there else f"CREATE SCHEMA {{schema}};\n{CREATE_LEDGER}"
    begin = f"BEGIN;\nSELECT pg_advisory_xact_lock({LOCK_KEY});\nSET LOCAL lock_timeout = '2s';"
    return script(_pending(_applied(connection, dialect), dialect), ledger, begin=begin, fill=dialect.fill)


def ensure_schema(connection: Connection[Any], dialect: PostgresDialect, *, migrate: bool) -> list[str]:
    """Check the schema, and with `migrate` bring it up to date; returns the names of the migrations applied."""
    applied = _applied(connection, dialect)
    pending = _pending(applied, dialect)
    if not pending:
        return []
    if not migrate:
        kind, state = (SchemaOutdated, "is outdated") if applied else (SchemaMissing, "has no tasklib tables")
        raise kind(
            f"schema {dialect.schema!r} {state} (missing: {', '.join(m.name for m in pending)}); "
            "run `tasklib migrate` with a role that may create tables"
        )
    try:
        return [migration.name for migration in pending if _apply(connection, dialect, migration)]
    except pg.InsufficientPrivilege as error:
        raise SchemaOutdated(
            f"schema {dialect.schema!r} needs {pending[0].name}, and this role may not create it "
            f"({error.diag.message_primary}); run `tasklib migrate` with a role that may"
        ) from error


def _pending(applied: Mapping[int, Applied], dialect: PostgresDialect) -> Sequence[Migration]:
    return missing(
        "postgres",
        applied,
        f"schema {dialect.schema!r}",
        "start over without their tasks: in another schema, such as ?schema=tasklib2 in the URL, or by removing them, "
        "as docs/production/migrations-and-schemas.md shows",
    )


def _applied(connection: Connection[Any], dialect: PostgresDialect) -> Mapping[int, Applied]:
    """What the schema has, by version; a foreign table in our place is an error."""
    # Read from the catalog itself: to_regclass answers from a cache that is still stale in a session which has just
    # waited for the lock, and would miss what the one before it created.
    found = connection.execute(
        "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname IN ('tasklib_migrations', 'tasks')",
        (dialect.schema,),
    ).fetchall()
    if ("tasklib_migrations",) in found:
        rows = connection.execute(
            # Through the whole row, because tables made before checksums have no such column.
            dialect.fill(
                "SELECT version, min_compatible, to_jsonb(m) ->> 'checksum' FROM {schema}.tasklib_migrations AS m"
            ).encode()
        )
        applied = {version: Applied(*rest) for version, *rest in rows}
        if applied:
            return applied
    if ("tasks",) in found:
        raise ForeignTable(
            f"schema {dialect.schema!r} already has a table `tasks` that is not tasklib's; it was not touched; "
            "choose another schema, for example postgresql://…?schema=tasklib"
        )
    return {}


def _apply(connection: Connection[Any], dialect: PostgresDialect, migration: Migration) -> bool:
    """Apply one migration unless another process was faster; False in that case."""
    for remaining in reversed(range(DDL_TRIES)):
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
                # Waiting for a table in use would block everything behind us: give up soon and try again.
                connection.execute("SET LOCAL lock_timeout = '2s'")
                return _apply_locked(connection, dialect, migration)
        except pg.LockNotAvailable:
            if remaining == 0:
                raise
    raise AssertionError("unreachable")


def _apply_locked(connection: Connection[Any], dialect: PostgresDialect, migration: Migration) -> bool:
    if migration.version in _applied(connection, dialect):
        return False
    if migration.version == 1:
        exists = "SELECT FROM pg_namespace WHERE nspname = %s"
        if connection.execute(exists, (dialect.schema,)).fetchone() is None:
            connection.execute(dialect.fill("CREATE SCHEMA {schema}").encode())
        connection.execute(dialect.fill(CREATE_LEDGER).encode())
    connection.execute(dialect.fill(migration.text).encode(), prepare=False)
    note = (
        "INSERT INTO {schema}.tasklib_migrations (version, name, min_compatible, checksum)"
        " VALUES (:version, :name, :oldest, :checksum)"
    )
    values = {
        "version": migration.version,
        "name": migration.name,
        "oldest": migration.min_compatible,
        "checksum": migration.checksum,
    }
    connection.execute(dialect.fill_pyformat(note).encode(), values)
    return True
