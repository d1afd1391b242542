"""Sending one statement of an operation: as it is where the session is set up, else with its settings around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncClientCursor, AsyncConnection, ClientCursor, Connection, Error, Pipeline
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.postgres.prepared import exchange
from tasklib.storage.postgres.session import BEGIN as BEGIN_ISOLATED
from tasklib.storage.postgres.session import BEGIN_WITH_SETTINGS, SET_LOCALLY, keeps_session
from tasklib.storage.statement import BEGIN, COMMIT, ROLLBACK, Row, Statement

KEYWORDS: Final = {BEGIN.name: b"BEGIN", COMMIT.name: b"COMMIT", ROLLBACK.name: b"ROLLBACK"}


def execute(connection: Connection[Any], dialect: PostgresDialect, statement: Statement) -> Sequence[Row]:
    """Run a statement and give its rows."""
    keyword = KEYWORDS.get(statement.name)
    if keyword is not None:
        connection.execute(_keyword(connection, keyword), prepare=False)
        return ()
    exchanged = exchange(connection, dialect, statement)
    if exchanged is not None:
        return connection.wait(exchanged)
    text, custom = dialect.encoded[statement.name]
    cursor = ClientCursor(connection, row_factory=dict_row) if custom else connection.cursor(row_factory=dict_row)
    if _needs_settings(connection):
        _send_with_settings(connection, cursor, text, statement)
    else:
        cursor.execute(text, statement.params)
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else ()


async def execute_async(
    connection: AsyncConnection[Any], dialect: PostgresDialect, statement: Statement
) -> Sequence[Row]:
    """The same, awaiting."""
    keyword = KEYWORDS.get(statement.name)
    if keyword is not None:
        await connection.execute(_keyword(connection, keyword), prepare=False)
        return ()
    exchanged = exchange(connection, dialect, statement)
    if exchanged is not None:
        return await connection.wait(exchanged)
    text, custom = dialect.encoded[statement.name]
    cursor = AsyncClientCursor(connection, row_factory=dict_row) if custom else connection.cursor(row_factory=dict_row)
    if _needs_settings(connection):
        await _send_with_settings_async(connection, cursor, text, statement)
    else:
        await cursor.execute(text, statement.params)
    return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else ()


def _keyword(connection: Connection[Any] | AsyncConnection[Any], keyword: bytes) -> bytes:
    return BEGIN_WITH_SETTINGS if keyword == b"BEGIN" and not keeps_session(connection) else keyword


def _needs_settings(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether a statement is by itself, in a session that is not ours: inside a transaction they are made already."""
    return not keeps_session(connection) and connection.info.transaction_status is TransactionStatus.IDLE


def _send_with_settings(connection: Connection[Any], cursor: Any, text: bytes, statement: Statement) -> None:
    """A transaction of its own, sent and answered at once where libpq can (14 or newer)."""
    try:
        if Pipeline.is_supported():
            with connection.pipeline():
                connection.execute(BEGIN_ISOLATED)
                connection.execute(SET_LOCALLY)
                cursor.execute(text, statement.params)
                connection.execute(b"COMMIT")
        else:
            connection.execute(BEGIN_WITH_SETTINGS)
            cursor.execute(text, statement.params)
            connection.execute(b"COMMIT")
    except Error:
        if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.execute(b"ROLLBACK")
        raise


async def _send_with_settings_async(
    connection: AsyncConnection[Any], cursor: Any, text: bytes, statement: Statement
) -> None:
    try:
        if Pipeline.is_supported():
            async with connection.pipeline():
                await connection.execute(BEGIN_ISOLATED)
                await connection.execute(SET_LOCALLY)
                await cursor.execute(text, statement.params)
                await connection.execute(b"COMMIT")
        else:
            await connection.execute(BEGIN_WITH_SETTINGS)
            await cursor.execute(text, statement.params)
            await connection.execute(b"COMMIT")
    except Error:
        if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
            await connection.execute(b"ROLLBACK")
        raise
