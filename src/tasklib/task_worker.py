"""TaskWorker: a worker for the default queue, as programs that use the module functions start it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasklib.core.config import Config
from tasklib.errors import ConfigurationError
from tasklib.queue.default import queue_for
from tasklib.queue.sync_async import require_asyncio
from tasklib.worker import Worker, WorkerSettings
from tasklib.worker.signals import is_handled


class TaskWorker:
    """Works on the default queue's tasks in the database of a configuration.

    Examples:
        >>> init("sqlite:///:memory:")
        >>> async def main() -> None:
        ...     worker = TaskWorker(concurrency=4)
        ...     running = asyncio.create_task(worker.run())
        ...     worker.stop()
        ...     await running
        >>> asyncio.run(main())
    """

    def __init__(
        self,
        config: str | Config | None = None,
        concurrency: int = 1,
        poll_interval_seconds: float = 1.0,
        **settings: Any,
    ) -> None:
        self._settings = WorkerSettings(
            concurrency=concurrency, poll_interval_seconds=poll_interval_seconds, **settings
        )
        self._polite = "signals" not in settings
        self._queue = queue_for(config)
        self._worker: Worker | None = None
        self._running = False
        self._stopped = False

    async def run(self) -> None:
        """Work until `stop`, SIGTERM, SIGINT or cancellation; then let running tasks finish.

        Where the program handles SIGTERM itself, as a web server does, signals are left to it, unless `signals=True`.

        Examples:
            >>> init("sqlite:///:memory:")
            >>> worker = TaskWorker(concurrency=4, grace_seconds=20)
            >>> worker.stop()
            >>> asyncio.run(worker.run())  # stopped before it began
        """
        require_asyncio()
        if self._running:
            raise ConfigurationError(
                "this TaskWorker runs already, and stop() would end one of the two; raise its concurrency=, or make "
                "another TaskWorker"
            )
        if self._stopped:
            return
        settings = self._settings
        if self._polite and is_handled():
            settings = replace(settings, signals=False)
        self._worker = Worker(self._queue, settings)
        self._running = True
        try:
            await self._worker.run()
        finally:
            self._running = False

    def stop(self) -> None:
        """Stop claiming and drain; called a second time, stop now.

        Examples:
            >>> init("sqlite:///:memory:")
            >>> TaskWorker(concurrency=4).stop()
        """
        self._stopped = True
        if self._worker is not None:
            self._worker.stop()
