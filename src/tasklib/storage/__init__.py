"""Where tasks are kept.  Internal: nobody outside this package sees SQL."""

from __future__ import annotations

from tasklib.core.config import Config
from tasklib.storage.database import Database


def connect(config: Config) -> Database:
    """The database a configuration names; nothing is opened before the first operation."""
    if config.is_sqlite:
        from tasklib.storage.sqlite.database import SqliteDatabase

        return SqliteDatabase(config)
    from tasklib.storage.postgres.database import PostgresDatabase

    return PostgresDatabase(config)
