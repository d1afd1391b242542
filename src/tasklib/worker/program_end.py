"""A worker in a thread drains when the program ends, while the threads it needs are still there.

When the main thread ends, Python first calls the functions registered with `threading`, last registered first, and only
then those registered with `atexit`.  In between, `concurrent.futures` ends its threads, and from Python 3.12 on no
thread can be started any more: too late to record how a task ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any

from tasklib.worker.signals import Stoppable

REST_SECONDS = 5.0
"""How long asyncio tasks that outlive the worker may take to end after they are cancelled."""

log = logging.getLogger("tasklib.worker")

_lock = threading.Lock()
_registered = False
_ending = False
_workers: set[StopAtEnd] = set()


class StopAtEnd:
    """While the block runs in another thread than the main one, the program's end stops the worker and awaits it."""

    def __init__(self, worker: Stoppable, *, patience_seconds: float) -> None:
        self._worker = worker
        self._patience = patience_seconds
        self._over = threading.Event()
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._loop = asyncio.get_running_loop()
            _register()
            with _lock:
                _workers.add(self)
            if _ending:
                self._worker.stop()

    async def __aexit__(self, *_: object) -> None:
        with _lock:
            _workers.discard(self)
        self._over.set()

    @property
    def is_here(self) -> bool:
        """Whether it runs in this process, and not in the one that this was forked from."""
        return self._process == os.getpid()

    def request_stop(self) -> None:
        """Ask the worker to stop; asked again, to stop now."""
        if self._loop is not None and not self._over.is_set():
            try:
                self._loop.call_soon_threadsafe(self._worker.stop)
            except RuntimeError:  # its event loop was closed under it
                self._over.set()

    def wait(self) -> None:
        """Return when it has stopped, or should have long ago."""
        self._over.wait(self._patience)


def run_in_thread(main: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`, but it always returns: it does not wait for asyncio tasks that refuse to end, and it works
    while the program ends, when asyncio can no longer start the thread it wants."""
    done = False

    async def work() -> None:
        nonlocal done
        try:
            await main
        finally:
            await _end_the_rest()
        done = True

    try:
        asyncio.run(work())
    except RuntimeError:
        if not (done and _ending):
            raise


async def _end_the_rest() -> None:
    """Cancel what is left on this event loop, and abandon what does not end: asyncio would wait for ever."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    refusing = (await asyncio.wait(rest, timeout=REST_SECONDS))[1] if rest else ()
    for task in refusing:
        log.error("%r was cancelled and does not end; it is left behind", task.get_coro())
        asyncio.tasks._unregister_task(task)  # noqa: SLF001  documented for those who extend asyncio


def _register() -> None:
    global _registered
    with _lock:
        if not _registered and not _ending:
            importlib.import_module("concurrent.futures.thread")  # registers first, and so ends its threads after us
            with contextlib.suppress(RuntimeError):  # the program is ending already
                threading._register_atexit(_stop_workers)  # type: ignore[attr-defined]  # noqa: SLF001  see above
            _registered = True


def _stop_workers() -> None:
    global _ending
    _ending = True
    with _lock:
        workers = [worker for worker in _workers if worker.is_here]
    try:
        _stop_all(workers)
    except KeyboardInterrupt:
        _stop_all(workers)


def _stop_all(workers: list[StopAtEnd]) -> None:
    for worker in workers:
        worker.request_stop()
    for worker in workers:
        worker.wait()
