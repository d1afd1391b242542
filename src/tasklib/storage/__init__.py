"""Where tasks are stored.  Internal: there is no SQL outside this package."""

from __future__ import annotations

from tasklib.core.clock import Clock, DatabaseClock
from tasklib.core.config import Config
from tasklib.storage.database import Database


def connect(config: Config, clock: Clock | None = None) -> Database:
    """The database that a configuration names; nothing is opened before the first operation.

    Statements take `now` from the clock, by default the database's own.
    """
    clock = clock or DatabaseClock()
    if config.is_sqlite:
        from tasklib.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(config, clock)
    from tasklib.storage.postgres.database import PostgresDatabase

    return PostgresDatabase(config, clock)
