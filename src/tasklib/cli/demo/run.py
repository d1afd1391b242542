"""Running the demo: a worker, a producer and a view in one process, until the time or the work is over."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from tasklib.cli.command import Cli
from tasklib.cli.demo.functions import define_tasks
from tasklib.cli.demo.ledger import Ledger
from tasklib.cli.demo.service import open_browser, serve_dashboard
from tasklib.cli.demo.view import View
from tasklib.cli.demo.workload import Producer, Run, arranged
from tasklib.core.config import Config, redact_url
from tasklib.core.task import Task
from tasklib.queue import TaskQueue
from tasklib.service.audit import AuditLog
from tasklib.worker import Worker, WorkerSettings

WAVE_SECONDS = 0.25
PRODUCING = 0.55
"""The part of the time in which new tasks are submitted; the rest is for finishing them."""
CONCURRENCY = 16
LIVE = ("pending", "running", "retrying")
PAGE = 1000


async def run_demo(cli: Cli, seconds: float | None, *, keep: bool, port: int | None, browser: bool) -> Ledger:
    """Run it, for some time or until it is stopped; the closed ledger."""
    ledger, run = Ledger(), _new_run(shared=cli.given_url is not None)
    # Failures are part of the demo; the ledger checks whether they were intended.
    logging.getLogger("tasklib").setLevel(logging.ERROR)
    with _database(cli, keep=keep) as url:
        # Short delays, so that retries can be seen.
        queue = TaskQueue(Config(database_url=url, base_retry_delay_seconds=0.3))
        define_tasks(queue, ledger, run)
        started = time.monotonic()
        try:
            queue.pauses()
            async with serve_dashboard(queue, port) as address:
                _announce(cli, address, browser=browser)
                await _work(cli, queue, ledger, run, seconds, address)
            ledger.seconds = time.monotonic() - started
            # What was changed by hand on the dashboard, which the ledger cannot foresee.
            ledger.changes = len(await AuditLog(queue).apage(limit=1000))
            ledger.close([task async for task in _all_tasks(queue, run.tags)])
        finally:
            await queue.aclose()
    return ledger


def _announce(cli: Cli, address: str | None, *, browser: bool) -> None:
    if address is None:
        cli.out.note("there is no dashboard without the HTTP service: pip install 'tasklib-queue[serve]'")
        return
    text = f"The dashboard is at {address}"
    cli.out.note(text) if cli.out.as_json else cli.out.line(text)
    sys.stdout.flush()
    if browser:
        open_browser(address)


async def _work(
    cli: Cli, queue: TaskQueue, ledger: Ledger, run: Run, seconds: float | None, address: str | None
) -> None:
    worker = Worker(queue, WorkerSettings(concurrency=CONCURRENCY, signals=False, grace_seconds=5))
    view = View(cli.out, queue, ledger, run, address)
    async with arranged(queue, run):
        with _stop_on_signal() as stop:
            working = asyncio.create_task(worker.run())
            watching = asyncio.create_task(view.run())
            try:
                await _produce(queue, ledger, run, seconds, stop, working)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
                worker.stop()
                await working


async def _produce(
    queue: TaskQueue,
    ledger: Ledger,
    run: Run,
    seconds: float | None,
    stop: asyncio.Event,
    working: asyncio.Task[None],
) -> None:
    producer, started = Producer(queue, ledger, run), time.monotonic()

    def over(part: float) -> bool:
        late = seconds is not None and time.monotonic() - started >= seconds * part
        return late or stop.is_set() or working.done()

    while not over(PRODUCING):
        await producer.submit_wave()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), WAVE_SECONDS)
    await producer.finish()
    deadline = time.monotonic() + 5  # After Ctrl-C running tasks may still finish, but not for long.
    while await queue.acount(state=LIVE, tags=run.tags):
        if working.done() or (time.monotonic() > deadline if stop.is_set() or seconds is None else over(1)):
            return
        await asyncio.sleep(WAVE_SECONDS / 2)


def _new_run(*, shared: bool) -> Run:
    """The names are short in a database of its own; in a shared one no worker of another demo may define them."""
    number = uuid4().hex[:8]
    return Run(number, f"demo-{number}" if shared else "demo")


async def _all_tasks(queue: TaskQueue, tags: dict[str, str]) -> AsyncIterator[Task]:
    last: Task | None = None
    while page := await queue.alist(tags=tags, limit=PAGE, before=last):
        for task in page:
            yield task
        last = page[-1]


@contextmanager
def _database(cli: Cli, *, keep: bool) -> Generator[str, None, None]:
    """The database given as an option, or a SQLite file of the demo's own."""
    if cli.given_url is not None:
        yield cli.given_url
        return
    folder = Path(tempfile.mkdtemp(prefix="tasklib-demo-"))
    url = f"sqlite:///{folder / 'demo.db'}"
    try:
        yield url
    finally:
        if keep:
            cli.out.note(f"the demo's tasks are kept: tasklib list --database-url {redact_url(url)}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stop_on_signal() -> Generator[asyncio.Event, None, None]:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
