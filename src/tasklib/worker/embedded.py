"""A worker beside a web application, for as long as the application runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tasklib.core.calls.own_tasks import own_task
from tasklib.worker.worker import Worker

log = logging.getLogger("tasklib.worker")


@asynccontextmanager
async def working_beside(worker: Worker) -> AsyncGenerator[None]:
    """Run the worker while the block runs, then let its tasks finish within its grace.

    The block begins when the start-up hooks have run and the database was tried once.  Errors of the hooks and unusable
    tables are raised here; a database that cannot be reached does not delay the block.
    """
    running = own_task(worker.run(), owner=worker)
    await _until_started(worker, running)
    running.add_done_callback(_log_early_end)
    try:
        yield
    finally:
        running.remove_done_callback(_log_early_end)
        worker.stop()
        await _until_ended(worker, running)


async def _until_started(worker: Worker, running: asyncio.Task[None]) -> None:
    started = own_task(worker.started.wait())
    try:
        await asyncio.wait([started, running], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        worker.stop()
        await _until_ended(worker, running)
        raise
    finally:
        started.cancel()
    if running.done():
        await running


async def _until_ended(worker: Worker, running: asyncio.Task[None]) -> None:
    """Wait for the drain; a cancellation meanwhile shortens it to an immediate stop, and is re-raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
            worker.stop()
    if cancelled is not None:
        raise cancelled
    await running


def _log_early_end(running: asyncio.Task[None]) -> None:
    """Log that the worker ended while the application continues, which would otherwise go unnoticed until it stops."""
    if not running.cancelled() and (error := running.exception()) is not None:
        log.critical("the worker beside the application has ended; restart the application", exc_info=error)
