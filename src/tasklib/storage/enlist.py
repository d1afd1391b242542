"""Running operations in the open transaction of the caller's own connection, which is never committed here.

Every kind of connection comes down to a link (`caller_links.py`): how parameters are written for it, and one function
that sends a text and gives rows.

What must happen as a whole happens in a savepoint, so that a caller who catches its error and goes on commits
nothing of it.  A connection without a transaction (autocommit) keeps each statement by itself: that is the
caller's choice.

No setting of the connection is changed.  On SQLite that leaves the caller's checkpoints to the caller: before
3.51.3 one that runs while another connection writes can damage the file, see `sqlite/writer_lock.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tasklib.core.time.clock import Clock
from tasklib.errors import ConfigurationError, SchemaMissing
from tasklib.storage.caller_links import Link, class_name, is_a, link_to
from tasklib.storage.dialects import sqlite
from tasklib.storage.run import run_awaiting, steps
from tasklib.storage.statement import BEGIN, COMMIT, PARAMETER, ROLLBACK, Operation, Row, Statement, T, pyformat

if TYPE_CHECKING:
    from tasklib.storage.dialects.postgres import PostgresDialect


def enlist(connection: Any, dialect: PostgresDialect | sqlite.SqliteDialect, clock: Clock) -> Enlisted:
    """The caller's connection, ready to run operations; one that cannot is a ConfigurationError saying why."""
    link = link_to(connection)
    wanted = "sqlite" if isinstance(dialect, sqlite.SqliteDialect) else "postgresql"
    if link.database != wanted:
        raise ConfigurationError(
            f"the queue is on {wanted} and the connection given ({class_name(connection)}) is on {link.database}; "
            "pass a connection to the queue's own database, or leave connection= out"
        )
    if link.closed:
        raise ConfigurationError(f"the connection given ({class_name(connection)}) is closed; pass an open one")
    return Enlisted(link, dialect, clock)


class Enlisted:
    """A connection that belongs to the caller."""

    def __init__(self, link: Link, dialect: PostgresDialect | sqlite.SqliteDialect, clock: Clock) -> None:
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
                if sqlite.writes_unseen(name, part):
                    yield _OPEN_SQLITE, ()
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
    link = link_to(connection)
    if link.asynchronous or link.style == "numbered":
        raise ConfigurationError(
            f"the tables can be made on a blocking connection only, and {class_name(connection)} is not one"
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


async def _sent(link: Link, text: str, params: Any) -> Sequence[Row] | None:
    return await link.send(text, params)


def database_of(connection: Any) -> str:
    """Which kind of database the caller's connection is open on: `postgresql`, `sqlite` or another."""
    return link_to(connection).database


_SAVEPOINT: Final = {
    BEGIN.name: ("SAVEPOINT tasklib",),
    COMMIT.name: ("RELEASE SAVEPOINT tasklib",),
    ROLLBACK.name: ("ROLLBACK TO SAVEPOINT tasklib", "RELEASE SAVEPOINT tasklib"),
}
_OPEN_SQLITE: Final = "DELETE FROM tasks WHERE false"
"""Makes Python's sqlite3 open the transaction that it opens before a write whose first word says so, and before no
other: the release of a savepoint would commit, and so would `WITH … INSERT`."""
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
    elif (sqlstate := _sqlstate(origin)) is not None or is_a(origin, "psycopg.Error"):
        from tasklib.storage.dialects import postgres

        if is_a(origin, "psycopg.Error"):
            translated = postgres.translate(origin)
        else:
            translated = postgres.explain(sqlstate, str(origin).partition("\n")[0])
    elif is_a(error, "django.core.exceptions.SynchronousOnlyOperation"):
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
    seen: set[int] = set()  # an error may be its own cause
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, sqlite3.Error) or is_a(inner, "psycopg.Error") or _sqlstate(inner) is not None:
            found = inner
        inner = getattr(inner, "orig", None) or inner.__cause__
    return found


def _sqlstate(error: Any) -> str | None:
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if found is None and is_a(error, "psycopg2.OperationalError"):
        return "08006"  # connection_failure: psycopg2 has no code of its own for a lost connection
    return found if isinstance(found, str) else None
