"""Sending our statements by libpq's own calls: a cursor of psycopg's costs more than a small statement.

Each connection of our pools has its own prepared statements.  The values of all parameters are sent as text, of a type
that the server finds in the statement, and rows are read by psycopg's loaders, as a cursor would read them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection, Connection, DataError
from psycopg.abc import PQGen
from psycopg.abc import Transformer as Reader
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.statement import Row, Statement

AnyConnection: TypeAlias = Connection[Any] | AsyncConnection[Any]


def exchange(connection: AnyConnection, dialect: PostgresDialect, statement: Statement) -> PQGen[Sequence[Row]] | None:
    """What sends the statement and reads its rows, for `connection.wait`; None where only a cursor can do it."""
    known = connection.__dict__.get(_ATTRIBUTE)
    numbered = dialect.numbered.get(statement.name)
    if known is None or numbered is None or connection.prepare_threshold is None:
        return None
    text, names = numbered
    try:
        values = [_ENCODERS[type(value)](value) for value in map(statement.params.__getitem__, names)]
    except KeyError:
        return None
    return _exchange(connection, known, statement.name, text, values)


def remember_statements(connection: AnyConnection) -> None:
    """From now on `exchange` prepares statements on this connection, whose session must stay ours."""
    if connection.info.encoding == "utf-8":
        setattr(connection, _ATTRIBUTE, _Known())


class _Known:
    """The statements of one connection's session: sent once, or prepared."""

    __slots__ = ("prefix", "statements")

    def __init__(self) -> None:
        # A name that no other connection uses: behind an undetected pooler another client would run our statement.
        self.prefix = secrets.token_hex(8)
        self.statements: dict[str, _Prepared | None] = {}


class _Prepared:
    """A statement of the session, and how its rows are read."""

    __slots__ = ("columns", "name", "reader")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.reader: Reader | None = None
        self.columns: tuple[str, ...] = ()


def _exchange(
    connection: AnyConnection, known: _Known, name: str, text: bytes, values: list[bytes | None]
) -> PQGen[Sequence[Row]]:
    """Prepare from the second use on: planning our larger statements takes longer than running them."""
    pgconn, statements = connection.pgconn, known.statements
    prepared = statements.get(name)
    if prepared is not None:
        pgconn.send_query_prepared(prepared.name, values)
    elif name in statements:
        prepared = _Prepared(f"tasklib_{known.prefix}_{name}".encode())
        pgconn.send_prepare(prepared.name, text)
        yield from _result(pgconn)
        statements[name] = prepared
        pgconn.send_query_prepared(prepared.name, values)
    else:
        statements[name] = None
        pgconn.send_query_params(text, values)
    result = yield from _result(pgconn)
    return _rows(connection, prepared, result) if result.nfields else ()


def _result(pgconn: Any) -> Generator[Any, Any, PGresult]:
    """The answer to what was sent last; psycopg's error if it is one."""
    results = yield from execute(pgconn)
    result: PGresult = results[-1]
    if result.status not in _GOOD:
        raise error_from_result(result)
    return result


def _rows(connection: AnyConnection, prepared: _Prepared | None, result: PGresult) -> Sequence[Row]:
    reader: Reader | None = None if prepared is None else prepared.reader
    if reader is None or prepared is None:
        reader = Transformer(connection)
        columns = tuple((result.fname(index) or b"").decode() for index in range(result.nfields))
        if prepared is not None:
            prepared.reader, prepared.columns = reader, columns
    else:
        columns = prepared.columns
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, lambda values: dict(zip(columns, values, strict=True)))


def _text(value: str) -> bytes:
    encoded = value.encode()
    if b"\0" in encoded:
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return encoded


_ATTRIBUTE: Final = "_tasklib_statements"
_GOOD: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_ENCODERS: Final[Mapping[type, Callable[[Any], bytes | None]]] = {
    type(None): lambda _: None,
    str: _text,
    int: lambda value: b"%d" % value,
    bool: lambda value: b"t" if value else b"f",
    float: lambda value: repr(value).encode(),
    datetime: lambda value: value.isoformat(" ").encode(),
    UUID: lambda value: str(value).encode(),
}
