"""PgQueuer on asyncpg and uvloop, 500 jobs to a batch."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries

from bench.peers.reporting import Tally, apace, atime_calls, chunks, given, report_latency

tally = Tally()


async def work(url: str) -> None:
    queue = PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=2, max_size=10)))

    @queue.entrypoint("noop")
    async def noop(job: object) -> None:
        tally.count += 1

    @queue.entrypoint("timed")
    async def timed(job: object) -> None:
        report_latency(json.loads(job.payload)["t"])

    await asyncio.gather(tally.on_loop(), queue.run(batch_size=500))


async def main() -> None:
    command, url, count = given()
    if command == "work":
        return await work(url)
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))

    async def insert(_: int) -> None:
        for chunk in chunks(count):
            payloads = [b'{"n": %d}' % n for n in chunk]
            await queries.enqueue(["noop"] * len(chunk), payloads, [0] * len(chunk))

    match command:
        case "setup":
            await queries.install()
        case "single":
            await atime_calls(lambda n: queries.enqueue("noop", b'{"n": %d}' % n), count)
        case "bulk":
            await atime_calls(insert, 1)
        case "paced":
            await apace(lambda t: queries.enqueue("timed", json.dumps({"t": t}).encode()), count)
    return None


if __name__ == "__main__":
    uvloop.run(main())
