"""What is SQLite's own: how values are bound, and what its errors mean."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import Any
from uuid import UUID

from tasklib.errors import (
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnavailable,
    PermissionDenied,
    SchemaMissing,
    StorageError,
    TaskLibError,
)
from tasklib.storage.rows import moment_text
from tasklib.storage.statement import DuplicateKey, Sql, UndecodedText, load_sql


class SqliteDialect:
    """The statements, ready to run."""

    @property
    def statements(self) -> Mapping[str, Sql]:
        """Every statement by name; a text may hold several that belong in one transaction."""
        return load_sql("sqlite")


@cache
def parts(name: str) -> Sequence[str]:
    """The single statements of a named one, in order."""
    return split(load_sql("sqlite")[name].text)


def split(text: str) -> Sequence[str]:
    """The single statements of a text, each of which ends its line."""
    return [part for part in re.split(r";\s*(?:\n|$)", text) if part.strip()]


@cache
def commits_itself(name: str) -> bool:
    """Whether it is one statement without an answer: outside a transaction SQLite commits it before it returns."""
    sql = load_sql("sqlite")[name]
    return sql.writes and len(parts(name)) == 1 and "RETURNING" not in sql.text


@cache
def writes_unseen(name: str, part: str) -> bool:
    """Whether Python's sqlite3 takes this part of a statement for one that only reads, though it may write."""
    return load_sql("sqlite")[name].writes and part.lstrip().startswith("WITH")


def bind(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as SQLite keeps them: times and ids as text, and `now` from this machine's clock if not given.

    SQLite runs inside this process, so this clock is the database's.
    """
    bound = {key: value if type(value) in _AS_THEY_ARE else _value(value) for key, value in params.items()}
    if bound.get("now") is None:
        bound["now"] = moment_text(datetime.now(UTC))
    return bound


def execute(connection: sqlite3.Connection, name: str, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a named statement, all of its parts, and give the rows of the last one that has any."""
    bound = bind(params)
    rows: list[dict[str, Any]] = []
    for part in parts(name):
        cursor = connection.execute(part, bound)
        if cursor.description:
            columns = [column[0] for column in cursor.description]
            rows = [dict(zip(columns, row, strict=True)) for row in _fetch(connection, cursor, part, bound)]
    return rows


def _fetch(connection: sqlite3.Connection, cursor: sqlite3.Cursor, part: str, bound: Mapping[str, Any]) -> list[Any]:
    """The rows; if one holds text that is not UTF-8, all are read again with a mark in place of its odd bytes."""
    try:
        return cursor.fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error) or not part.lstrip().startswith(("SELECT", "WITH")):
            raise
    factory = connection.text_factory
    connection.text_factory = _marked
    try:
        return connection.execute(part, bound).fetchall()
    finally:
        connection.text_factory = factory


def _marked(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return UndecodedText(data.decode("utf-8", "replace"))


def translate(error: Exception) -> Exception:
    """The tasklib error that says what SQLite's error means to a user."""
    if not isinstance(error, sqlite3.Error):
        return error
    text = str(error)
    translated: TaskLibError
    match error:
        case sqlite3.OperationalError() if "locked" in text or "busy" in text:
            translated = DatabaseBusy(
                f"another program is writing to the SQLite file ({text}); end its transaction, or raise "
                "busy_timeout_seconds"
            )
        case sqlite3.OperationalError() if "full" in text:
            translated = DatabaseFull(f"SQLite has no room left: {text}; free space, nothing was stored")
        case sqlite3.OperationalError() if "readonly" in text or "read-only" in text:
            translated = PermissionDenied(f"SQLite cannot write: {text}; check the permissions of file and folder")
        case sqlite3.OperationalError() if "no such table" in text:
            translated = SchemaMissing(f"SQLite says: {text}; run `tasklib migrate` on this database")
        case sqlite3.OperationalError() if "unable to open" in text or "disk I/O" in text:
            translated = DatabaseUnavailable(f"SQLite cannot use the file: {text}; check that the folder exists")
        case sqlite3.IntegrityError() if text.startswith("UNIQUE"):
            translated = DuplicateKey(f"SQLite refused the statement: {text}")
        case _:
            translated = StorageError(f"SQLite refused the statement: {text}")
    translated.__cause__ = error
    return translated


_AS_THEY_ARE = frozenset({str, int, float, NoneType})


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    return str(value) if isinstance(value, UUID) else value
