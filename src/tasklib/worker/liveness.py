"""Staying alive in the eyes of others: heartbeats from a thread that a busy event loop cannot starve."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from tasklib.errors import TaskLibError
from tasklib.storage.database import Database
from tasklib.storage.operations import workers

log = logging.getLogger("tasklib.worker")


class Heartbeat:
    """Beats until stopped; tells once when the instance turns out to have been declared dead."""

    def __init__(
        self,
        database: Database,
        instance: UUID,
        *,
        interval_seconds: float,
        now: Callable[[], datetime | None],
        declared_dead: Callable[[], None],
    ) -> None:
        self._database = database
        self._instance = instance
        self._interval = interval_seconds
        self._now = now
        self._declared_dead = declared_dead
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tasklib-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat; the registration counts as the first."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _beat(self) -> None:
        failing = False
        while not self._stopped.wait(self._interval):
            try:
                known = self._database.run(lambda: workers.beat(self._instance, None, self._now()))
            except TaskLibError as error:
                if not failing:
                    log.warning("cannot send heartbeats, trying until the database is back: %s", error)
                failing = True
                continue
            failing = False
            if not known and not self._stopped.is_set():
                log.error("this worker was declared dead; its tasks run elsewhere")
                self._declared_dead()
                return
