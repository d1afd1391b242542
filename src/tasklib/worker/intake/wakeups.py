"""LISTEN for notifications of the database, only while they matter: each notification wakes every listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tasklib.storage.database import Database


class Listener(Protocol):
    """What receives the notifications, in the event loop that listens."""

    def notified(self, event: str) -> None:
        """The database has sent a notification."""


class Wakeups:
    """The subscription of one worker: it listens while it is registered for notifications, and while it runs tasks."""

    def __init__(self, database: Database, listener: Listener) -> None:
        self._database = database
        self._listener = listener
        self._unsubscribe: Callable[[], None] | None = None

    async def listen(self) -> None:
        """Subscribe, unless subscribed already."""
        if self._unsubscribe is not None:
            return
        loop = asyncio.get_running_loop()

        def pass_on(event: str) -> None:
            if not event.startswith("done") and not loop.is_closed():
                loop.call_soon_threadsafe(self._listener.notified, event)

        self._unsubscribe = await asyncio.to_thread(self._database.subscribe, pass_on)

    def ignore(self) -> None:
        """Unsubscribe."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
