"""Where tasks are stored.  Internal: there is no SQL outside this package."""

from __future__ import annotations

from tasklib.core.config import Config, redact_url
from tasklib.core.time.clock import Clock, DatabaseClock
from tasklib.errors import ConfigurationError
from tasklib.storage.database import Database


def connect(config: Config, clock: Clock | None = None) -> Database:
    """The database that a configuration names; nothing is opened before the first operation.

    Statements take `now` from the clock, by default the database's own.
    """
    clock = clock or DatabaseClock()
    if config.is_sqlite:
        from tasklib.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(config, clock)
    try:
        from tasklib.storage.postgres.database import PostgresDatabase
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_pool", "psycopg_binary", "psycopg_c"):
            raise
        raise ConfigurationError(
            f"{redact_url(config.database_url)} needs the PostgreSQL driver psycopg, which cannot be imported here "
            f"({error}): pip install 'tasklib-queue[postgres]'"
        ) from error
    return PostgresDatabase(config, clock)
