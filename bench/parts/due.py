"""How late an idle worker starts what becomes due: delayed tasks and retries, on PostgreSQL and on SQLite.

    python -m bench due
    python -m bench due --tasks 300

Nobody notifies when a moment comes: the worker knows the next one and sleeps until then.  Tasks become due one after
the other at uneven times, so that each finds the worker idle.  Late by more than 20 ms at the 95th percentile fails.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from statistics import quantiles
from typing import Any
from uuid import UUID

from bench.report import show
from bench.server import durable_server
from tasklib import Config, Retry, TaskContext, TaskQueue
from tasklib.submission import TaskFunction

MOST_LATE_MS = 20.0
DELAY_SECONDS = 0.5
"""Of each retry, and of the first delayed task; the worker polls far less often."""
APART_SECONDS = 0.05, 0.15


async def delayed() -> None:
    """Start when it is due."""


async def retried(ctx: TaskContext) -> None:
    """Fail once, and start again when that is due."""
    if ctx.attempt == 1:
        raise Retry(delay=DELAY_SECONDS)


async def measure(url: str, count: int) -> dict[str, list[float]]:
    """How many milliseconds late each task was, by what it waited for."""
    async with TaskQueue(Config(url, poll_interval_seconds=5.0)) as queue:
        late, again = queue.task(delayed), queue.task(retried)
        working = asyncio.ensure_future(queue.arun(concurrency=10))
        found = {"delayed": [await late_by(queue, each) for each in await delay(late, count)], "retried": list[float]()}
        for _ in range(count):
            task_id = await again.asubmit()
            await asyncio.sleep(random.uniform(*APART_SECONDS))
            failed = await queue.aget(task_id)
            if failed is not None and failed.next_retry_at is not None:  # else the machine was too busy to tell
                found["retried"].append(await late_by(queue, task_id, failed.next_retry_at))
        working.cancel()
        await asyncio.wait([working])
    return found


async def delay(task: TaskFunction[[], Any], count: int) -> list[UUID]:
    """Submit so many, each due a little later than the one before."""
    due, ids = DELAY_SECONDS, list[UUID]()
    for _ in range(count):
        ids.append(await task.options(delay_seconds=due).asubmit())
        due += random.uniform(*APART_SECONDS)
    return ids


async def late_by(queue: TaskQueue, task_id: UUID, due: datetime | None = None) -> float:
    """Milliseconds between the moment a task was due and its start, when it is done."""
    task = await queue.await_(task_id)
    assert task.started_at is not None
    return (task.started_at - (due or task.scheduled_at)).total_seconds() * 1e3


@contextmanager
def places(postgres: int | None) -> Iterator[dict[str, str]]:
    """An address on each database."""
    with durable_server(postgres) as server, tempfile.TemporaryDirectory() as folder:
        yield {f"PostgreSQL {server.installation.version}": server.url, "SQLite": f"sqlite:///{folder}/tasks.db"}


def run(options: argparse.Namespace) -> bool:
    """Whether the promise was kept."""
    logging.disable(logging.WARNING)
    rows, worst = [], 0.0
    with places(options.postgres) as addresses:
        for database, url in addresses.items():
            for name, found in asyncio.run(measure(url, options.tasks)).items():
                cuts = quantiles(found, n=100)
                rows.append([f"{name} on {database}", *(f"{cuts[part - 1]:.1f}" for part in (50, 95, 99))])
                worst = max(worst, cuts[94])
    show(f"Milliseconds late, {options.tasks} tasks each", ["", "p50", "p95", "p99"], rows)
    return worst <= MOST_LATE_MS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=100)
