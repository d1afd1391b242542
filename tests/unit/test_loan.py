"""A connection lent to a transactional task on SQLite."""

from __future__ import annotations

import sqlite3
import threading

from tasklib.storage.sqlite.borrowed import LentConnection, Loan


class Interrupted(LentConnection):
    """A connection that says when it is interrupted."""

    tried: threading.Event

    def interrupt(self) -> None:
        self.tried.set()
        super().interrupt()


def test_a_loan_that_expires_while_its_connection_is_being_closed_ends_quietly() -> None:
    connection = sqlite3.connect(":memory:", factory=Interrupted, check_same_thread=False)
    connection.tried = threading.Event()
    undone: list[bool] = []
    loan = Loan(connection, 60, lambda: undone.append(True))
    failures: list[BaseException | None] = []
    hook, threading.excepthook = threading.excepthook, lambda failure: failures.append(failure.exc_value)
    try:
        with loan._lock:  # as during a statement of the user's, the last one
            expiring = threading.Thread(target=loan.expire)
            connection.close()
            expiring.start()
            assert connection.tried.wait(60)
            loan._returned = True
        expiring.join(60)
    finally:
        threading.excepthook = hook
    assert (failures, undone) == ([], [])
