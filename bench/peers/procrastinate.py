"""Procrastinate on psycopg, 20 jobs at once."""

from __future__ import annotations

import asyncio

import procrastinate

from bench.peers.reporting import Tally, apace, atime_calls, chunks, given, report_latency

tally = Tally()


async def main() -> None:
    command, url, count = given()
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=30))

    @app.task(name="noop")
    async def noop(n: int) -> None:
        tally.count += 1

    @app.task(name="timed")
    async def timed(t: float) -> None:
        report_latency(t)

    async def insert(_: int) -> None:
        for chunk in chunks(count):
            await noop.batch_defer_async(*({"n": n} for n in chunk))

    async with app.open_async():
        match command:
            case "setup":
                await app.schema_manager.apply_schema_async()
            case "single":
                await atime_calls(lambda n: noop.defer_async(n=n), count)
            case "bulk":
                await atime_calls(insert, 1)
            case "paced":
                await apace(lambda t: timed.defer_async(t=t), count)
            case "work":
                worker = app.run_worker_async(concurrency=20, install_signal_handlers=False)
                await asyncio.gather(tally.on_loop(), worker)


if __name__ == "__main__":
    asyncio.run(main())
