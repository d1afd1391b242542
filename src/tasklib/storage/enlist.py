"""Running operations in the open transaction of the caller's own connection, which is never committed here.

Every kind of connection comes down to a link: how parameters are written for it, and one function that sends a
text and gives rows.  A library is recognised by what the program has imported already; none is imported for it.

What must happen as a whole happens in a savepoint, so that a caller who catches its error and goes on commits
nothing of it.  A connection without a transaction (autocommit) keeps each statement by itself: that is the
caller's choice.

No setting of the connection is changed.  On SQLite that leaves the caller's checkpoints to the caller: before
3.51.3 one that runs while another connection writes can damage the file, see `sqlite/gate.py`.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal
from zoneinfo import ZoneInfo

from tasklib.core.time.clock import Clock
from tasklib.errors import ConfigurationError, SchemaMissing
from tasklib.storage.dialects import sqlite
from tasklib.storage.run import run_awaiting, steps
from tasklib.storage.statement import BEGIN, COMMIT, PARAMETER, ROLLBACK, Operation, Row, Statement, T, pyformat

if TYPE_CHECKING:
    from tasklib.storage.dialects.postgres import PostgresDialect

_ACCEPTED: Final = (
    "a psycopg Connection or AsyncConnection; an asyncpg Connection; a SQLAlchemy Connection, Session, "
    "AsyncConnection or AsyncSession; a Django connection; a sqlite3 or aiosqlite Connection"
)


def enlist(connection: Any, dialect: PostgresDialect | sqlite.SqliteDialect, clock: Clock) -> Enlisted:
    """The caller's connection, ready to run operations; one that cannot is a ConfigurationError saying why."""
    link = _link(connection)
    wanted = "sqlite" if isinstance(dialect, sqlite.SqliteDialect) else "postgresql"
    if link.database != wanted:
        raise ConfigurationError(
            f"the queue is on {wanted} and the connection given ({_name(connection)}) is on {link.database}; "
            "pass a connection to the queue's own database, or leave connection= out"
        )
    if link.closed:
        raise ConfigurationError(f"the connection given ({_name(connection)}) is closed; pass an open one")
    return Enlisted(link, dialect, clock)


class Enlisted:
    """A connection that belongs to the caller."""

    def __init__(self, link: _Link, dialect: PostgresDialect | sqlite.SqliteDialect, clock: Clock) -> None:
        self._link = link
        self._dialect = dialect
        self._clock = clock

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in the caller's transaction, on a blocking connection."""
        if self._link.asynchronous:
            operation.close()
            raise ConfigurationError(
                "the connection given is asynchronous, and this call is not: "
                "await the form that starts with `a`, for example asubmit()"
            )
        return _finish(self.arun(operation))

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation in the caller's transaction; a blocking connection blocks the event loop meanwhile."""
        return await run_awaiting(steps(operation, _translate, self._clock), self._execute)

    async def _execute(self, statement: Statement) -> Sequence[Row]:
        rows: Sequence[Row] = ()
        try:
            for text, params in self._texts(statement):
                found = await self._link.send(text, params)
                rows = rows if found is None else found
        except Exception as error:
            if not _is_autocommit(statement, error):
                raise
        return rows

    def _texts(self, statement: Statement) -> Iterator[tuple[str, Any]]:
        """What to send for a statement, with the parameters as the connection's driver takes them."""
        name, style = statement.name, self._link.style
        if name in _SAVEPOINT:
            if name == BEGIN.name and isinstance(self._dialect, sqlite.SqliteDialect):
                yield _OPEN_SQLITE, ()
            yield from ((text, ()) for text in _SAVEPOINT[name])
        elif isinstance(self._dialect, sqlite.SqliteDialect):
            for part in sqlite.parts(name):
                yield pyformat(part) if style == "pyformat" else part, sqlite.bind(statement.params)
        elif style == "pyformat":
            yield self._dialect.pyformat[name], statement.params
        else:
            text, order = _numbered(self._dialect.statements[name].text)
            values = [statement.params[key] for key in order]
            yield self._dialect.fill(text), tuple(None if value is None else str(value) for value in values)


def sending(connection: Any) -> Callable[[str, Any], Sequence[Row]]:
    """A function that sends a text on the caller's blocking connection; its parameters are written `:name`.

    None for the parameters: the text is sent as it is, and may be several statements where the driver takes them.
    """
    link = _link(connection)
    if link.asynchronous or link.style == "numbered":
        raise ConfigurationError(
            f"the tables can be made on a blocking connection only, and {_name(connection)} is not one"
        )

    def send(text: str, params: Any) -> Sequence[Row]:
        written = pyformat(text) if params is not None and link.style == "pyformat" else text
        try:
            return _finish(_sent(link, written, params)) or ()
        except Exception as error:
            translated = _translate(error)
            if translated is error:
                raise
            raise translated from error

    return send


async def _sent(link: _Link, text: str, params: Any) -> Sequence[Row] | None:
    return await link.send(text, params)


def database_of(connection: Any) -> str:
    """Which kind of database the caller's connection is open on: `postgresql`, `sqlite` or another."""
    return _link(connection).database


_SAVEPOINT: Final = {
    BEGIN.name: ("SAVEPOINT tasklib",),
    COMMIT.name: ("RELEASE SAVEPOINT tasklib",),
    ROLLBACK.name: ("ROLLBACK TO SAVEPOINT tasklib", "RELEASE SAVEPOINT tasklib"),
}
_OPEN_SQLITE: Final = "DELETE FROM tasks WHERE false"
"""Makes Python's sqlite3 open the transaction it opens before a write and not before a savepoint, whose release
would then commit."""
_NO_TRANSACTION: Final = "25P01"


def _is_autocommit(statement: Statement, error: Exception) -> bool:
    """True if the error only says that PostgreSQL has no transaction open to put a savepoint in."""
    return statement.name in _SAVEPOINT and _sqlstate(_origin(error)) == _NO_TRANSACTION


@cache
def _numbered(text: str) -> tuple[str, Sequence[str]]:
    """The text with `$1` parameters, and their names in that order.

    Each is sent as text and cast by PostgreSQL, because asyncpg would encode it by the type it finds, with codecs
    that the caller may have replaced: one that makes JSON of Python values is common, and ours is JSON already.
    """
    order = list(dict.fromkeys(PARAMETER.findall(text)))
    return PARAMETER.sub(lambda found: f"${order.index(found[1]) + 1}::text", text), order


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing, as that of a blocking connection does."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a blocking connection waited for an event loop")


def _translate(error: Exception) -> Exception:
    """The tasklib error for what a driver, or a library around it, raised; others pass as they are."""
    origin = _origin(error)
    translated: Exception = error
    if isinstance(origin, sqlite3.Error):
        translated = sqlite.translate(origin)
    elif (sqlstate := _sqlstate(origin)) is not None or _is_a(origin, "psycopg.Error"):
        from tasklib.storage.dialects import postgres

        if _is_a(origin, "psycopg.Error"):
            translated = postgres.translate(origin)
        else:
            translated = postgres.explain(sqlstate, str(origin).partition("\n")[0])
    elif _is_a(error, "django.core.exceptions.SynchronousOnlyOperation"):
        translated = ConfigurationError(
            "a Django connection cannot be used on an event loop: call submit(), not asubmit(), "
            "in the function that sync_to_async runs"
        )
    if isinstance(translated, SchemaMissing):
        translated = SchemaMissing(
            f"the connection given does not see the queue's tables: {origin}; "
            "it must be open on the queue's own database"
        )
    if translated is not error:
        translated.__cause__ = error
    return translated


def _origin(error: BaseException) -> Any:
    """The driver's own error, inside those that SQLAlchemy and Django wrap around it, and outside the system's own."""
    found = error
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, sqlite3.Error) or _is_a(inner, "psycopg.Error") or _sqlstate(inner) is not None:
            found = inner
        inner = getattr(inner, "orig", None) or inner.__cause__
    return found


def _sqlstate(error: Any) -> str | None:
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if found is None and _is_a(error, "psycopg2.OperationalError"):
        return "08006"  # connection_failure: psycopg2 has no code of its own for a lost connection
    return found if isinstance(found, str) else None


_Style = Literal["pyformat", "numbered", "named"]
_Send = Callable[[str, Any], Awaitable[Sequence[Row] | None]]


@dataclass(frozen=True, slots=True)
class _Link:
    """A connection of the caller: its database, how to write parameters, and how to send a text.

    `send` is a coroutine function for every connection, but that of a blocking one never waits.  It gives None for
    a text that has no rows to give.
    """

    database: str
    style: _Style
    send: _Send
    asynchronous: bool
    closed: bool = False


def _link(connection: Any) -> _Link:
    for kinds, make in _LINKS.items():
        if any(_is_a(connection, kind) for kind in kinds):
            return make(connection)
    raise _unknown(connection)


def _unknown(connection: Any) -> ConfigurationError:
    return ConfigurationError(f"connection= cannot be a {_name(connection)}; it takes {_ACCEPTED}")


def _is_a(thing: Any, kind: str) -> bool:
    """isinstance by the full name of a class; what was never imported has no instances."""
    module, _, name = kind.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(thing, found)


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _psycopg(connection: Any) -> _Link:
    from psycopg import Cursor
    from psycopg.rows import dict_row

    async def send(text: str, params: Any) -> Sequence[Row] | None:
        with Cursor(connection, row_factory=dict_row) as cursor:
            cursor.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else None

    return _Link("postgresql", "pyformat", send, asynchronous=False, closed=connection.closed)


def _psycopg_async(connection: Any) -> _Link:
    from psycopg import AsyncCursor
    from psycopg.rows import dict_row

    async def send(text: str, params: Any) -> Sequence[Row] | None:
        async with AsyncCursor(connection, row_factory=dict_row) as cursor:
            await cursor.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description else None

    return _Link("postgresql", "pyformat", send, asynchronous=True, closed=connection.closed)


def _asyncpg(connection: Any) -> _Link:
    async def send(text: str, params: Any) -> Sequence[Row]:
        return [dict(record) for record in await connection.fetch(text, *params)]

    return _Link("postgresql", "numbered", send, asynchronous=True, closed=_is_closed(connection.is_closed))


def _sqlite3(connection: sqlite3.Connection) -> _Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        cursor = connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(text, params)
            return _records(cursor, cursor.fetchall())
        finally:
            cursor.close()

    return _Link("sqlite", "named", send, asynchronous=False, closed=_is_closed(lambda: connection.total_changes < 0))


def _aiosqlite(connection: Any) -> _Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        async with connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(text, params)
            return _records(cursor, await cursor.fetchall())

    return _Link("sqlite", "named", send, asynchronous=True, closed=_is_closed(lambda: connection.total_changes < 0))


def _django(connection: Any) -> _Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        with connection.cursor() as cursor:
            cursor.execute(text, params)
            return _records(cursor, _zoned(cursor.fetchall() if cursor.description else (), connection))

    vendor = getattr(connection, "vendor", None)
    if vendor is None:  # Django's caches have the same kind of proxy.
        raise _unknown(connection)
    return _Link(vendor, "pyformat", send, asynchronous=False)


def _zoned(rows: Sequence[Sequence[Any]], connection: Any) -> Sequence[Sequence[Any]]:
    """The rows, their times with a zone: with USE_TZ off Django takes it from those of PostgreSQL."""
    if connection.vendor != "postgresql" or connection.timezone is not None:
        return rows
    zone = ZoneInfo(connection.timezone_name)
    return [
        [v.replace(tzinfo=zone) if isinstance(v, datetime) and v.tzinfo is None else v for v in row] for row in rows
    ]


def _sqlalchemy(owner: Any) -> _Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        connection = owner.connection() if _is_session(owner) else owner
        # Without parameters a driver must not look for places to put them: `%` is then a letter like others.
        options = {"no_parameters": True} if params is None else None
        return _mappings(connection.exec_driver_sql(text, params, execution_options=options))

    return _sqlalchemy_link(owner, send, asynchronous=False)


def _sqlalchemy_async(owner: Any) -> _Link:
    async def send(text: str, params: Any) -> Sequence[Row] | None:
        connection = await owner.connection() if _is_session(owner) else owner
        return _mappings(await connection.exec_driver_sql(text, params))

    return _sqlalchemy_link(owner, send, asynchronous=True)


def _sqlalchemy_link(owner: Any, send: _Send, *, asynchronous: bool) -> _Link:
    dialect = _bind_of(owner).dialect
    style = _SQLALCHEMY_STYLES.get((dialect.name, dialect.driver))
    if style is None:
        raise ConfigurationError(
            f"tasklib does not support SQLAlchemy's {dialect.name}+{dialect.driver}; it supports "
            + ", ".join("+".join(key) for key in _SQLALCHEMY_STYLES)
        )
    # A closed session opens a connection again by itself.
    closed = not _is_session(owner) and _is_closed(lambda: owner.closed)
    return _Link(dialect.name, style, send, asynchronous, closed)


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


_LINKS: Final[dict[tuple[str, ...], Callable[[Any], _Link]]] = {
    ("psycopg.Connection",): _psycopg,
    ("psycopg.AsyncConnection",): _psycopg_async,
    ("asyncpg.Connection", "asyncpg.pool.PoolConnectionProxy"): _asyncpg,
    ("sqlite3.Connection",): _sqlite3,
    ("aiosqlite.Connection",): _aiosqlite,
    ("sqlalchemy.engine.Connection", "sqlalchemy.orm.Session"): _sqlalchemy,
    ("sqlalchemy.ext.asyncio.AsyncConnection", "sqlalchemy.ext.asyncio.AsyncSession"): _sqlalchemy_async,
    ("sqlalchemy.orm.scoped_session", "sqlalchemy.ext.asyncio.async_scoped_session"): lambda registry: _link(
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
