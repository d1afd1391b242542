"""The settings of our statements: made once where a session stays ours, else in each transaction.

Poolers such as PgBouncer lend a server session for one transaction.  What is prepared or set there reaches other
programs, and what they have prepared is run in its place.  So every new connection is tested for a pooler, also after
an outage: one may have been put in front since.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from typing import Any, Final
from weakref import WeakValueDictionary

import psycopg
from psycopg import AsyncConnection, Connection, IsolationLevel

from tasklib.core.config import Config, redact_url
from tasklib.storage.dialects.postgres import unreachable
from tasklib.storage.postgres.prepared import remember_statements

# Our statements are planned once and run often; compiling them, or planning them each time, costs more than
# running them.  A plan made while the table was empty is kept when it is full, and to such a plan reading all of the
# table looks cheap: so an index is used wherever one fits, and in its order.  And a process that is frozen between two
# statements does not keep its locks from the others for longer than it takes to declare it dead.
SETTINGS: Final = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "idle_in_transaction_session_timeout": "30s",
}
SESSION: Final = (
    "; ".join(f"SET {name} = '{value}'" for name, value in SETTINGS.items())
    # A default isolation chosen for the application is not for the queue's own statements.
    + "; SET default_transaction_isolation = 'read committed'"
).encode()
BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
SET_LOCALLY: Final = (
    "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in SETTINGS.items())
).encode()
"""The same for one transaction, in one statement."""
BEGIN_WITH_SETTINGS: Final = BEGIN + b"; " + SET_LOCALLY
READABLE: Final = b"SET DateStyle = 'ISO'"
"""Psycopg reads times in no other style; poolers keep it for each client."""
WHICH_SESSION: Final = "SELECT pg_backend_pid()"
ROUNDS: Final = 3

log = logging.getLogger("tasklib.storage")

AnyConnection = Connection[Any] | AsyncConnection[Any]


def keeps_session(connection: AnyConnection) -> bool:
    """Whether what is set and prepared on this connection stays there, and reaches no other program."""
    return connection.prepare_threshold is not None


class SessionSetup:
    """Sets up new connections of one database; it is the `configure` of its pools."""

    def __init__(self, config: Config) -> None:
        self._url = config.database_url
        self._declared = config.prepare_statements
        self._timeout = config.connect_timeout_seconds
        self._lock = threading.Lock()
        self._sessions: WeakValueDictionary[int, AnyConnection] = WeakValueDictionary()
        self._warned = False

    @property
    def prepare_threshold(self) -> int | None:
        """Prepare from the second use on: planning our larger statements takes longer than running them."""
        return None if self._declared is False else 1

    def configure(self, connection: Connection[Any], *, lent: bool) -> None:
        """Prepare a connection for our own operations, or to be lent to users' code.

        The statements of users' code are planned as the server's settings say.  But what renews the lease meanwhile
        changes the task's row, which in a stricter isolation the completion could not change any more.
        """
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        if not _is_readable(connection):
            connection.execute(READABLE, prepare=False)
        if keeps_session(connection):
            row = connection.execute(WHICH_SESSION, prepare=False).fetchone()
            if self._is_suspect(connection, row) and (not self._declared or self._lends_sessions()):
                self._stop_preparing(connection)
            elif not lent:
                connection.execute(SESSION, prepare=False)
                remember_statements(connection)

    async def configure_async(self, connection: AsyncConnection[Any], *, lent: bool) -> None:
        """The same, awaiting."""
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if not _is_readable(connection):
            await connection.execute(READABLE, prepare=False)
        if keeps_session(connection):
            row = await (await connection.execute(WHICH_SESSION, prepare=False)).fetchone()
            suspect = self._is_suspect(connection, row)
            if suspect and (not self._declared or await asyncio.to_thread(self._lends_sessions)):
                self._stop_preparing(connection)
            elif not lent:
                await connection.execute(SESSION, prepare=False)
                remember_statements(connection)

    def _is_suspect(self, connection: AnyConnection, row: Any) -> bool:
        """Whether there may be a pooler between us and the server.

        The session that answers is not the one that accepted the connection, because a pooler gives keys of its own; or
        another of our connections has the same session, and then that one stops preparing too.
        """
        _name_apart(connection)
        session: int = row[0]
        with self._lock:
            other = self._sessions.get(session)
            self._sessions[session] = connection
        if other is not None and other is not connection and not other.closed:
            other.prepare_threshold = None
            return True
        return connection.info.backend_pid != session

    def _lends_sessions(self) -> bool:
        return lends_sessions(self._url, self._timeout)

    def _stop_preparing(self, connection: AnyConnection) -> None:
        connection.prepare_threshold = None
        if not self._warned:
            self._warned = True
            log.warning(
                "%s is a pooler, such as PgBouncer: statements are not prepared, and settings are made in each "
                "transaction; set prepare_statements=False if it lends a session for one transaction, True if each "
                "connection keeps its own",
                redact_url(self._url),
            )


def _is_readable(connection: AnyConnection) -> bool:
    """Whether the server sends times in the format that psycopg reads; it reports that for every connection."""
    return (connection.info.parameter_status("DateStyle") or "").startswith("ISO")


def _name_apart(connection: AnyConnection) -> None:
    """Prepare under names that no other connection uses: psycopg counts from 0 in each, so that behind an undetected
    pooler one client would run another's statement; with these names it gets an error."""
    connection._prepared._prepared_idx = secrets.randbits(62)  # noqa: SLF001  psycopg has no public way


def lends_sessions(url: str, timeout_seconds: float) -> bool:
    """True if two connections were served by one session, or one of them by two.

    The first is asked twice, then the other: a pooler that reuses the session released last serves both with it, and
    one that takes turns serves the first with two.  Repeated, because other programs use the pool meanwhile.
    """
    with _connect(url, timeout_seconds) as one, _connect(url, timeout_seconds) as other:
        ours: set[int] = set()
        theirs: set[int] = set()
        for _ in range(ROUNDS):
            ours |= {_session_of(one), _session_of(one)}
            theirs.add(_session_of(other))
        return len(ours) > 1 or len(theirs) > 1 or bool(ours & theirs)


def _connect(url: str, timeout_seconds: float) -> Connection[tuple[int]]:
    timeout = max(2, round(timeout_seconds))
    try:
        return psycopg.connect(
            url, autocommit=True, prepare_threshold=None, connect_timeout=timeout, application_name="tasklib"
        )
    except psycopg.Error as error:
        raise unreachable(url, error) from error


def _session_of(connection: Connection[tuple[int]]) -> int:
    """The server process that answers."""
    row = connection.execute(WHICH_SESSION).fetchone()
    assert row is not None
    return row[0]
