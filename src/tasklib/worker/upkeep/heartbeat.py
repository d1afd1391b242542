"""Heartbeats, sent from a thread that a busy event loop cannot delay."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from tasklib.core.config import Config
from tasklib.errors import TaskLibError
from tasklib.storage.database import Database
from tasklib.storage.operations import workers

FAILING_SECONDS = 1.0
"""The longest wait for the next try while beats fail: until one arrives this worker claims nothing."""

log = logging.getLogger("tasklib.worker")


class HeartbeatOwner(Protocol):
    """Whose heartbeat it is; both are called in its thread."""

    def worker_info(self) -> Mapping[str, Any] | None:
        """What the instance reports of itself with this beat; None: nothing new."""
        ...

    def declared_dead(self) -> None:
        """Others have taken over from the instance."""


class Heartbeat:
    """Sends heartbeats until stopped, and knows since when they have arrived without a gap."""

    def __init__(self, database: Database, config: Config, instance: UUID, owner: HeartbeatOwner) -> None:
        self._database = database
        self._interval = config.heartbeat_interval_seconds
        self._timeout = config.worker_timeout_seconds
        self.instance = instance
        self.owner = owner
        # The registration was the first beat.
        self._last = self._held_since = time.monotonic()
        self._failing = False
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tasklib-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)

    @property
    def silence(self) -> float:
        """The part of the time after which others take over that has passed since the last beat arrived; 1 is all."""
        return (time.monotonic() - self._last) / self._timeout

    @property
    def is_steady(self) -> bool:
        """True once beats have held for one full timeout: only then may this instance judge others by theirs.

        After an outage all workers look silent; those alive have sent a heartbeat again before any of them may judge.
        """
        return self.silence < 1 and time.monotonic() - self._held_since >= self._timeout

    def _run(self) -> None:
        while not self._rest():
            self._beat()

    def _rest(self) -> bool:
        """Wait until the next beat is due; True when there shall be none."""
        return self._stopped.wait(min(self._interval, FAILING_SECONDS) if self._failing else self._interval)

    def _beat(self) -> None:
        # The moment before the request counts: the database saw it no earlier.
        asked = time.monotonic()
        try:
            known = self._database.run(lambda: workers.beat(self.instance, self.owner.worker_info()))
        except TaskLibError as error:
            if not self._failing and not self._stopped.is_set():
                log.warning("cannot send heartbeats, trying until the database is back: %s", error)
            self._failing = True
        except Exception:
            # Whatever it is: a thread that ended here would let others take this worker for dead.
            log.exception("cannot send heartbeats")
            self._failing = True
        else:
            self._arrived(asked, known=known)

    def _arrived(self, asked: float, *, known: bool, unbroken_since: float = 0.0) -> None:
        """A beat asked for at that moment was answered."""
        with self._lock:
            if self._failing or asked - self._last > self._timeout:
                unbroken_since = asked
            self._held_since = max(self._held_since, unbroken_since)
            self._last = max(self._last, asked)
            self._failing = False
            if known or self._stopped.is_set():
                return
            self._stopped.set()
        log.error("this worker was declared dead; its tasks run elsewhere")
        self.owner.declared_dead()
