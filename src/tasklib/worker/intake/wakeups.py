"""Hearing what the database announces: only while it matters, because every listener is woken by every notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tasklib.storage.database import Database


class Listener(Protocol):
    """Who is told of each notice, within the event loop that listens."""

    def hear(self, event: str) -> None:
        """Something happened in the database."""
        ...


class Wakeups:
    """The subscription of one worker, taken up and given up as it comes on call and runs tasks."""

    def __init__(self, database: Database, listener: Listener) -> None:
        self._database = database
        self._listener = listener
        self._unsubscribe: Callable[[], None] | None = None

    async def listen(self) -> None:
        """Hear everything from now on."""
        if self._unsubscribe is not None:
            return
        loop = asyncio.get_running_loop()

        def pass_on(event: str) -> None:
            if not event.startswith("done") and not loop.is_closed():
                loop.call_soon_threadsafe(self._listener.hear, event)

        self._unsubscribe = await asyncio.to_thread(self._database.subscribe, pass_on)

    def ignore(self) -> None:
        """Hear nothing from now on."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
