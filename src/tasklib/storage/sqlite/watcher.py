"""Noticing changes: those of this process at once, those that other processes commit within one poll."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from tasklib.storage.database import Listener
from tasklib.storage.forking import notice_forks
from tasklib.storage.sqlite.across_forks import Use

POLL_SECONDS = 0.02
"""How often the file's change counter is polled: a few microseconds each time, no file is read."""


class SqliteWatcher:
    """Subscribers are called with `changed` after every commit."""

    def __init__(self, connect: Callable[[], sqlite3.Connection] | None, file: Path | None) -> None:
        self._connect = connect
        self._file = file
        self.forget_parent()
        notice_forks(self)

    def forget_parent(self) -> None:
        """A forked child has no watching thread and no subscribers."""
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener from now on; returns how to stop."""
        with self._lock:
            self._listeners.append(listener)
            if self._connect is not None and self._thread is None:
                self._closed = threading.Event()
                self._thread = threading.Thread(
                    target=self._watch, args=(self._closed,), name="tasklib-sqlite-watch", daemon=True
                )
                self._thread.start()

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def notify(self) -> None:
        """Call every subscriber."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener("changed")

    def close(self) -> None:
        """Stop watching; the next subscription starts it again."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._closed.set()
        # One whose start was interrupted by Ctrl-C is not alive yet; it ends by itself as soon as it is.
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(5)

    def _watch(self, closed: threading.Event) -> None:
        assert self._connect is not None
        connection = self._connect()
        try:
            seen = None
            while not closed.wait(POLL_SECONDS):
                if not self._listeners:
                    continue
                try:
                    with Use(self._file):
                        version = connection.execute("PRAGMA data_version").fetchone()
                except sqlite3.OperationalError:
                    continue
                if version != seen:
                    seen = version
                    self.notify()
        finally:
            connection.close()
