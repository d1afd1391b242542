"""Tells whether a pooler stands between us and PostgreSQL that lends a server's session for one transaction."""

from __future__ import annotations

import psycopg
from psycopg import Connection

from tasklib.storage.dialects.postgres import unreachable

ROUNDS = 3


def lends_sessions(url: str, timeout_seconds: float) -> bool:
    """True if two connections were served by one session, or one of them by two.

    One is asked twice in a row and then the other: a pooler that hands out the session given back last serves both with
    it, and one that goes round serves the first with two.  Again, because other programs use the pool meanwhile.
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
    """The server's process that answers."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return row[0]
