"""tasklib, on PostgreSQL or SQLite, with its defaults but for the number of tasks at once."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from bench.peers.reporting import AT_ONCE, Tally, apace, atime_calls, given, report, report_latency, time_calls
from tasklib import Config, TaskQueue
from tasklib.core.time.event_loop import run
from tasklib.service.statistics import Statistics

CONCURRENCY, PROCESSES = 100, 2
DASHBOARDS, LOOK_SECONDS = 10, 5.0
tally = Tally()

if __name__ == "__main__":
    # The child processes import this module, and find here where the tasks are.
    os.environ["BENCH_URL"] = sys.argv[2]
queue = TaskQueue(
    Config(database_url=os.environ["BENCH_URL"], retention="completed=1h" if sys.argv[1:2] == ["busy"] else "")
)


@queue.task
async def in_coroutine(n: int) -> None:
    """Do nothing on the event loop."""
    tally.count += 1


@queue.task
def in_thread(n: int) -> None:
    """Do nothing in a thread."""
    tally.count += 1


@queue.task(isolation="process")
def in_process(n: int) -> None:
    """Do nothing in a child process."""


@queue.task
async def timed(t: float) -> None:
    """Report how long the task took to get here."""
    report_latency(t)


@queue.task
async def elsewhere(n: int) -> None:
    """What the others of a busy day submit."""


async def be_busy() -> None:
    """Submit 50 tasks a second, look as ten dashboards do, and remove old tasks as a worker does."""
    report(busy=True)
    looks = [look_on() for _ in range(DASHBOARDS)]
    await asyncio.gather(
        queue.arun(only=("elsewhere",)), apace(lambda _: queue.aenqueue("elsewhere", {"n": 1}), 10**9, 0.02), *looks
    )


async def look_on() -> None:
    """What one open page asks for, again and again."""
    statistics = Statistics(queue)
    while True:
        await asyncio.sleep(random.uniform(0, 2 * LOOK_SECONDS))
        await statistics.aoverview()
        await statistics.aseries(seconds=3600, step=60)
        await queue.alist(limit=50)


async def main() -> None:
    command, _, count = given()
    command, _, kind = command.partition(":")
    name = f"in_{kind or 'coroutine'}"
    if command in ("single", "blocking", "merged", "bulk"):
        await queue.alist(limit=1)  # Connected before it is measured, as the others are.
    match command:
        case "setup":
            await asyncio.to_thread(queue.migrate)
        case "single":
            await atime_calls(lambda n: queue.aenqueue(name, {"n": n}), count)
        case "blocking":
            await asyncio.to_thread(time_calls, lambda n: in_coroutine.submit(n=n), count)
        case "merged":
            await atime_calls(lambda n: queue.aenqueue(name, {"n": n}), count, at_once=AT_ONCE)
        case "bulk":
            task = globals()[name]
            await atime_calls(lambda _: task.asubmit_many(({"n": n} for n in range(count)), keep_ids=False), 1)
        case "paced":
            for n in range(3):  # A program that submits all day is connected, and has its statement ready.
                await queue.aenqueue("in_coroutine", {"n": n})
            await apace(lambda t: queue.aenqueue("timed", {"t": t}), count)
        case "busy":
            await be_busy()
        case "work":
            concurrency = PROCESSES if kind == "process" else CONCURRENCY
            await asyncio.gather(tally.on_loop(), queue.arun(concurrency=concurrency))
    await queue.aclose()


if __name__ == "__main__":
    run(main())  # on uvloop where it is installed, as `tasklib worker` does
