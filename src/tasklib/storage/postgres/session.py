"""What is set for our statements: once for a session that is ours while the connection lasts, else in each transaction.

Poolers such as PgBouncer lend a session of the server for one transaction.  What is prepared or set there reaches other
programs, and what others have prepared there is run in its place.  So it is looked for whenever a connection is opened,
also after an outage: nobody else tells us when a pooler was put in front.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from typing import Any, Final
from weakref import WeakValueDictionary

from psycopg import AsyncConnection, Connection, IsolationLevel

from tasklib.core.config import Config, redact_url
from tasklib.storage.postgres.pooler import lends_sessions

# Our statements are planned once and run often; compiling them, or planning them anew each time, costs more than
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
WHICH_SESSION: Final = "SELECT pg_backend_pid()"

log = logging.getLogger("tasklib.storage")

AnyConnection = Connection[Any] | AsyncConnection[Any]


def keeps_session(connection: AnyConnection) -> bool:
    """Whether what is set and prepared on this connection stays there, and reaches nobody else."""
    return connection.prepare_threshold is not None


class SessionSetup:
    """Makes new connections of one database ours; it is the `configure` of its pools."""

    def __init__(self, config: Config) -> None:
        self._url = config.database_url
        self._declared = config.prepare_statements
        self._timeout = config.connect_timeout_seconds
        self._lock = threading.Lock()
        self._sessions: WeakValueDictionary[int, AnyConnection] = WeakValueDictionary()
        self._warned = False

    @property
    def prepare_threshold(self) -> int | None:
        """From the second time on: planning our larger statements takes longer than running them."""
        return None if self._declared is False else 1

    def configure(self, connection: Connection[Any]) -> None:
        """Prepare a connection for our own operations."""
        self.configure_lent(connection)
        if keeps_session(connection):
            connection.execute(SESSION, prepare=False)

    async def configure_async(self, connection: AsyncConnection[Any]) -> None:
        """The same, awaiting."""
        await self.configure_lent_async(connection)
        if keeps_session(connection):
            await connection.execute(SESSION, prepare=False)

    def configure_lent(self, connection: Connection[Any]) -> None:
        """Prepare a connection for users' code, whose statements are planned as the server's settings say.

        But what renews the lease meanwhile changes the task's row, which in a stricter isolation the completion could
        not change any more.
        """
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        if keeps_session(connection):
            row = connection.execute(WHICH_SESSION, prepare=False).fetchone()
            if self._is_suspect(connection, row) and (not self._declared or self._lends_sessions()):
                self._stop_preparing(connection)

    async def configure_lent_async(self, connection: AsyncConnection[Any]) -> None:
        """The same, awaiting."""
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if keeps_session(connection):
            row = await (await connection.execute(WHICH_SESSION, prepare=False)).fetchone()
            suspect = self._is_suspect(connection, row)
            if suspect and (not self._declared or await asyncio.to_thread(self._lends_sessions)):
                self._stop_preparing(connection)

    def _is_suspect(self, connection: AnyConnection, row: Any) -> bool:
        """Whether somebody stands between us and the server.

        Who answers is not who greeted us, because a pooler gives keys of its own; or another of our connections has the
        same session, and then that one prepares nothing any more either.
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
                "transaction; say prepare_statements=False if it lends a session for one transaction, True if each "
                "connection keeps its own",
                redact_url(self._url),
            )


def _name_apart(connection: AnyConnection) -> None:
    """Prepare under names that no other connection uses: psycopg counts from 0 in each, so that behind a pooler nobody
    knows of, one client would run the other's statement; by these it gets an error."""
    connection._prepared._prepared_idx = secrets.randbits(62)  # noqa: SLF001  psycopg has no public way
