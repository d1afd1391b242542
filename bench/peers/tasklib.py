"""tasklib, on PostgreSQL or SQLite, with its defaults but for the number of tasks at once."""

from __future__ import annotations

import asyncio

from bench.peers.telling import AT_ONCE, Tally, apace, atime_calls, given, tell_latency
from tasklib import Config, TaskQueue

CONCURRENCY = 100
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


async def main() -> None:
    command, url, count = given()
    command, _, kind = command.partition(":")
    queue = TaskQueue(Config(database_url=url))
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
        case "work":
            await asyncio.gather(tally.on_loop(), queue.arun(concurrency=CONCURRENCY))
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(main())
