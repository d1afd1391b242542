"""LISTEN on a connection of its own, in a thread that passes every notification on."""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection, Pipeline, sql

from tasklib.storage.database import Listener

CHECK_SECONDS = 10.0
"""How long the connection may be silent before it is tested."""
ANSWER_SECONDS = 5.0
"""How long the server may take to answer before the connection is dropped."""
WAKE_SECONDS = 5.0
LINGER_SECONDS = 5.0
"""How long after its last subscriber the connection goes on listening: PostgreSQL wakes every listening session for
each notification, but a program that waits for a task often waits for another soon."""
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
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="tasklib-listen", daemon=True)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener from now on; returns how to stop.  Waits until LISTEN is in force, so nothing is missed."""
        with self._lock:
            self._listeners.append(listener)
            if not self._thread.is_alive() and not self._closed.is_set():
                self._thread.start()
        self._wake()
        self._listening.wait(ANSWER_SECONDS)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)
        self._wake_receiver.close()
        self._wake_sender.close()

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    connection.add_notify_handler(lambda notice: self._notify(notice.payload))
                    self._listen(connection)
                    if failures:
                        log.info("listening for notifications again")
                    failures = 0
                    self._serve(connection)
            except psycopg.Error as error:
                failures += 1
                if failures == 1:
                    log.warning(
                        "lost the connection for notifications, polling until it is back: %s", str(error).strip()
                    )
            # A caller that waits for the first LISTEN continues without it, by polling.
            self._listening.set()
            if not self._closed.is_set():
                self._closed.wait(min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(failures, 6)) * random.uniform(0.5, 1))

    def _listen(self, connection: Connection[Any]) -> None:
        _ask(connection, sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self._listening.set()
        self._notify("changed")

    def _serve(self, connection: Connection[Any]) -> None:
        """Pass notifications on; listen only while there are subscribers, and a moment longer."""
        received = needed = time.monotonic()
        while not self._closed.is_set():
            if _wait(connection, self._wake_receiver):
                received = time.monotonic()
                while (notice := connection.pgconn.notifies()) is not None:
                    self._notify(notice.extra.decode())
            if self._listeners:
                needed = time.monotonic()
                if not self._listening.is_set():
                    self._listen(connection)
            elif self._listening.is_set() and time.monotonic() - needed > LINGER_SECONDS:
                self._listening.clear()
                _ask(connection, sql.SQL("UNLISTEN *"))
            if time.monotonic() - received > CHECK_SECONDS:
                _ask(connection)
                received = time.monotonic()

    def _wake(self) -> None:
        """Have the thread check at once."""
        with suppress(OSError):  # it is awake already, or closed
            self._wake_sender.send(b"!")

    def _notify(self, event: str) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event)


def _wait(connection: Connection[Any], wake_receiver: socket.socket) -> bool:
    """Wait for a moment; whether the server has sent something.  Raises psycopg's error if the connection is lost."""
    poll = select.poll()  # not select, which refuses descriptors above 1,023
    for each in (connection, wake_receiver):
        poll.register(each.fileno(), select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(WAKE_SECONDS * 1000)}
    if wake_receiver.fileno() in ready:
        wake_receiver.recv(64)
    if connection.fileno() in ready:
        connection.pgconn.consume_input()
    return connection.fileno() in ready


def _ask(connection: Connection[Any], statement: sql.SQL | sql.Composed | None = None) -> None:
    """Run a statement that must be answered soon; raises psycopg's error if it is not.  Without one, the server answers
    all the same, and begins no transaction for it, where libpq can ask for that (14 or newer).

    A pooler or load balancer that hangs acknowledges what it is sent, so no timeout of TCP's ends the wait: we do.
    """
    overdue = threading.Timer(ANSWER_SECONDS, _cut, [connection.fileno()])
    overdue.daemon = True
    overdue.start()
    try:
        if statement is None and Pipeline.is_supported():
            with connection.pipeline():
                pass  # Its end is a Sync, which must be answered.
        else:
            connection.execute(statement or b"SELECT 1")
    finally:
        overdue.cancel()


def _cut(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
