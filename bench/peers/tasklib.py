"""tasklib, on PostgreSQL or SQLite, with its defaults but for the number of tasks at once."""

from __future__ import annotations

import asyncio
import random

from bench.peers.telling import AT_ONCE, Tally, apace, atime_calls, given, tell, tell_latency
from tasklib import Config, TaskQueue
from tasklib.manage import Manage

CONCURRENCY = 100
DASHBOARDS, LOOK_SECONDS = 10, 5.0
tally = Tally()


async def in_coroutine(n: int) -> None:
    """Do nothing on the event loop."""
    tally.count += 1


def in_thread(n: int) -> None:
    """Do nothing in a thread."""
    tally.count += 1


def in_process(n: int) -> None:
    """Do nothing in a child process."""


async def timed(t: float) -> None:
    """Tell how long it took to come here."""
    tell_latency(t)


async def elsewhere(n: int) -> None:
    """What the others of a busy day submit."""


async def be_busy(queue: TaskQueue) -> None:
    """Submit 50 tasks a second, look as ten dashboards do, and remove old tasks as a worker does."""
    queue.task(elsewhere)
    tell(busy=True)
    looks = [look_on(queue) for _ in range(DASHBOARDS)]
    await asyncio.gather(
        queue.arun(only=("elsewhere",)), apace(lambda _: queue.aenqueue("elsewhere", {"n": 1}), 10**9, 0.02), *looks
    )


async def look_on(queue: TaskQueue) -> None:
    """What one open page asks for, again and again."""
    manage = Manage(queue)
    while True:
        await asyncio.sleep(random.uniform(0, 2 * LOOK_SECONDS))
        await manage.aoverview()
        await manage.aseries(seconds=3600, step=60)
        await queue.alist(limit=50)


async def main() -> None:
    command, url, count = given()
    command, _, kind = command.partition(":")
    queue = TaskQueue(Config(database_url=url, retention="completed=1h" if command == "busy" else ""))
    queue.task(timed)
    queue.task(in_coroutine)
    queue.task(in_thread)
    queue.task(isolation="process")(in_process)
    name = f"in_{kind or 'coroutine'}"
    match command:
        case "setup":
            await asyncio.to_thread(queue.migrate)
        case "single":
            await atime_calls(lambda n: queue.aenqueue(name, {"n": n}), count)
        case "merged":
            await atime_calls(lambda n: queue.aenqueue(name, {"n": n}), count, at_once=AT_ONCE)
        case "bulk":
            task = queue.task(globals()[name])
            await atime_calls(lambda _: task.asubmit_many(({"n": n} for n in range(count)), keep_ids=False), 1)
        case "paced":
            await apace(lambda t: queue.aenqueue("timed", {"t": t}), count)
        case "busy":
            await be_busy(queue)
        case "work":
            await asyncio.gather(tally.on_loop(), queue.arun(concurrency=CONCURRENCY))
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(main())
