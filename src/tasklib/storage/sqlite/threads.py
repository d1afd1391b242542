"""The threads in which SQLite works for event loops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """A pool that goes on with the threads it has when no other can start, as while the program ends."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            # The call is queued already; an existing thread takes it.
            if not self._threads:
                raise
