"""Connections of callers: which library each belongs to, how parameters are written for it, and how a text is sent.

A library is recognised by what the program has imported already; none is imported for it.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from tasklib.errors import ConfigurationError
from tasklib.storage.statement import Row

_ACCEPTED: Final = (
    "a psycopg Connection or AsyncConnection; an asyncpg Connection; a SQLAlchemy Connection, Session, "
    "AsyncConnection or AsyncSession; a Django connection; a sqlite3 or aiosqlite Connection"
)

_Style = Literal["pyformat", "numbered", "named"]
_Send = Callable[[str, Any], Awaitable[Sequence[Row] | None]]


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of the caller: its database, how to write parameters, and how to send a text.

    `send` is a coroutine function for every connection, but that of a blocking one never waits.  It gives None for
    a text that has no rows to give.
    """

    database: str
    style: _Style
    send: _Send
    asynchronous: bool
    closed: bool = False


def link_to(connection: Any) -> Link:
    for kinds, make in _LINKS.items():
        if any(is_a(connection, kind) for kind in kinds):
            return make(connection)
    raise _unknown(connection)


def _unknown(connection: Any) -> ConfigurationError:
    return ConfigurationError(f"connection= cannot be a {class_name(connection)}; it takes {_ACCEPTED}")


def is_a(thing: Any, kind: str) -> bool:
    """isinstance by the full name of a class; what was never imported has no instances."""
    module, _, name = kind.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(thing, found)


def class_name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _psycopg(connection: Any) -> Link:
    from psycopg import Cursor
    from psycopg.rows import dict_row

    async def send(text: str, params: Any) -> Sequence[Row] | None:
        # In a pipeline of the caller's there are no rows before it is synchronised, as the end of an inner one does.
        inner = connection.pipeline if connection.pgconn.pipeline_status else nullcontext
        with Cursor(connection, row_factory=dict_row) as cursor:
            with inner():
                cursor.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else None

    return Link("postgresql", "pyformat", send, asynchronous=False, closed=connection.closed)


def _psycopg_async(connection: Any) -> Link:
    from psycopg import AsyncCursor
    from psycopg.rows import dict_row

    async def send(text: str, params: Any) -> Sequence[Row] | None:
        inner = connection.pipeline if connection.pgconn.pipeline_status else nullcontext
        async with AsyncCursor(connection, row_factory=dict_row) as cursor:
            async with inner():
                await cursor.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description else None

    return Link("postgresql", "pyformat", send, asynchronous=True, closed=connection.closed)


def _asyncpg(connection: Any) -> Link:
    async def send(text: str, params: Any) -> Sequence[Row]:
        return [dict(record) for record in await connection.fetch(text, *params)]

    return Link("postgresql", "numbered", send, asynchronous=True, closed=_is_closed(connection.is_closed))


def _sqlite3(connection: sqlite3.Connection) -> Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        cursor = connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(text, params)
            return _records(cursor, cursor.fetchall())
        finally:
            cursor.close()

    return Link("sqlite", "named", send, asynchronous=False, closed=_is_closed(lambda: connection.total_changes < 0))


def _aiosqlite(connection: Any) -> Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        async with connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(text, params)
            return _records(cursor, await cursor.fetchall())

    return Link("sqlite", "named", send, asynchronous=True, closed=_is_closed(lambda: connection.total_changes < 0))


def _django(connection: Any) -> Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        with connection.cursor() as cursor:
            cursor.execute(text, params)
            return _records(cursor, _zoned(cursor.fetchall() if cursor.description else (), connection))

    vendor = getattr(connection, "vendor", None)
    if vendor is None:  # Django's caches have the same kind of proxy.
        raise _unknown(connection)
    return Link(vendor, "pyformat", send, asynchronous=False)


def _zoned(rows: Sequence[Sequence[Any]], connection: Any) -> Sequence[Sequence[Any]]:
    """The rows, their times with a zone: with USE_TZ off Django takes it from those of PostgreSQL."""
    if connection.vendor != "postgresql" or connection.timezone is not None:
        return rows
    zone = ZoneInfo(connection.timezone_name)
    return [
        [v.replace(tzinfo=zone) if isinstance(v, datetime) and v.tzinfo is None else v for v in row] for row in rows
    ]


def _sqlalchemy(owner: Any) -> Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        connection = owner.connection() if _is_session(owner) else owner
        # Without parameters a driver must not look for places to put them: `%` is then a letter like others.
        options = {"no_parameters": True} if params is None else None
        return _mappings(connection.exec_driver_sql(text, params, execution_options=options))

    return _sqlalchemy_link(owner, send, asynchronous=False)


def _sqlalchemy_async(owner: Any) -> Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        connection = await owner.connection() if _is_session(owner) else owner
        return _mappings(await connection.exec_driver_sql(text, params))

    return _sqlalchemy_link(owner, send, asynchronous=True)


def _sqlalchemy_link(owner: Any, send: _Send, *, asynchronous: bool) -> Link:
    dialect = _bind_of(owner).dialect
    style = _SQLALCHEMY_STYLES.get((dialect.name, dialect.driver))
    if style is None:
        raise ConfigurationError(
            f"tasklib does not support SQLAlchemy's {dialect.name}+{dialect.driver}; it supports "
            + ", ".join("+".join(key) for key in _SQLALCHEMY_STYLES)
        )
    # A closed session opens a connection again by itself.
    closed = not _is_session(owner) and _is_closed(lambda: owner.closed)
    return Link(dialect.name, style, send, asynchronous, closed)


def _is_session(owner: Any) -> bool:
    return hasattr(owner, "get_bind")


def _bind_of(owner: Any) -> Any:
    """The engine or connection behind a SQLAlchemy connection or session."""
    if not _is_session(owner):
        return owner.engine
    try:
        return owner.get_bind()
    except Exception as error:
        raise ConfigurationError(
            f"the SQLAlchemy session does not say which database to use: {error}; "
            "pass session.connection(bind_arguments=...) instead of the session"
        ) from error


def _mappings(result: Any) -> Sequence[Row] | None:
    return [dict(row) for row in result.mappings()] if result.returns_rows else None


def _records(cursor: Any, rows: Sequence[Sequence[Any]]) -> Sequence[Row] | None:
    """Rows by column name; text that the caller's connection gives as bytes is text again."""
    if cursor.description is None:
        return None
    columns = [column[0] for column in cursor.description]
    decoded = ([v.decode() if isinstance(v, bytes) else v for v in row] for row in rows)
    return [dict(zip(columns, row, strict=True)) for row in decoded]


def _is_closed(ask: Callable[[], Any]) -> bool:
    """Whether the connection reports it, or raises at any use."""
    try:
        return ask() is True
    except Exception:  # noqa: BLE001 each library has an error of its own for it
        return True


_LINKS: Final[dict[tuple[str, ...], Callable[[Any], Link]]] = {
    ("psycopg.Connection",): _psycopg,
    ("psycopg.AsyncConnection",): _psycopg_async,
    ("asyncpg.Connection", "asyncpg.pool.PoolConnectionProxy"): _asyncpg,
    ("sqlite3.Connection",): _sqlite3,
    ("aiosqlite.Connection",): _aiosqlite,
    ("sqlalchemy.engine.Connection", "sqlalchemy.orm.Session"): _sqlalchemy,
    ("sqlalchemy.ext.asyncio.AsyncConnection", "sqlalchemy.ext.asyncio.AsyncSession"): _sqlalchemy_async,
    ("sqlalchemy.orm.scoped_session", "sqlalchemy.ext.asyncio.async_scoped_session"): lambda registry: link_to(
        registry()
    ),
    ("django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy"): _django,
}

_SQLALCHEMY_STYLES: Final[dict[tuple[str, str], _Style]] = {
    ("postgresql", "psycopg"): "pyformat",
    ("postgresql", "psycopg2"): "pyformat",
    ("postgresql", "asyncpg"): "numbered",
    ("sqlite", "pysqlite"): "named",
    ("sqlite", "aiosqlite"): "named",
}
