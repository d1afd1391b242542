"""LISTEN on a connection of its own, in a thread that passes every notification on."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection, sql

from tasklib.storage.database import Listener

CHECK_SECONDS = 10.0
"""How long the connection may be silent before it is asked whether it still lives."""
ANSWER_SECONDS = 5.0
"""How long the answer may take before the connection is given up."""
WAKE_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 5.0

log = logging.getLogger("tasklib.storage")


class PostgresListener:
    """Subscribers are called for each notification, and once with `changed` whenever some may have been missed."""

    def __init__(self, connect: Callable[[], Connection[Any]], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tasklib-listen", daemon=True)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener from now on; returns how to stop.  Waits for the first LISTEN, so nothing is missed."""
        with self._lock:
            self._listeners.append(listener)
            if not self._thread.is_alive() and not self._closed.is_set():
                self._thread.start()
        self._listening.wait(5)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def close(self) -> None:
        """Stop listening; the thread ends by itself within half a second."""
        self._closed.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    _ask(connection, sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self._listening.set()
                    self._tell("changed")
                    if failures:
                        log.info("listening for notifications again")
                    failures = 0
                    self._listen(connection)
            except psycopg.Error as error:
                failures += 1
                if failures == 1:
                    log.warning(
                        "lost the connection for notifications, polling until it is back: %s", str(error).strip()
                    )
            # Whoever waits for the first LISTEN goes on without it: polling is the floor.
            self._listening.set()
            if not self._closed.is_set():
                self._closed.wait(min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(failures, 6)) * random.uniform(0.5, 1))

    def _listen(self, connection: Connection[Any]) -> None:
        heard = time.monotonic()
        while not self._closed.is_set():
            for notification in connection.notifies(timeout=WAKE_SECONDS):
                heard = time.monotonic()
                self._tell(notification.payload)
                if self._closed.is_set():
                    return
            if time.monotonic() - heard > CHECK_SECONDS:
                _ask(connection, sql.SQL("SELECT 1"))
                heard = time.monotonic()

    def _tell(self, event: str) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event)


def _ask(connection: Connection[Any], statement: sql.SQL | sql.Composed) -> None:
    """Run a statement that must be answered soon; raises psycopg's error if it is not.

    A pooler or load balancer that hangs acknowledges what it is sent, so no timeout of TCP's ends the wait: we do.
    """
    overdue = threading.Timer(ANSWER_SECONDS, _cut, [connection.fileno()])
    overdue.daemon = True
    overdue.start()
    try:
        connection.execute(statement)
    finally:
        overdue.cancel()


def _cut(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
