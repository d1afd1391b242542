"""Children of one workflow, and the workflow after them: a worker and who submits, in one process."""

from __future__ import annotations

import asyncio
import time

from bench.peers.reporting import given, report
from tasklib import AsyncTaskContext, TaskQueue, injected

command, url, count = given()
queue = TaskQueue(url)
ended = asyncio.Event()


@queue.task
async def child(n: int) -> int:
    """Do nothing."""
    return n


@queue.task
async def parent(children: int, ctx: AsyncTaskContext = injected()) -> None:
    """Run the children, and then go on."""
    await ctx.map(child, ({"n": n} for n in range(children)))
    ended.set()


async def main() -> None:
    async with queue:
        working = asyncio.ensure_future(queue.arun(concurrency=100, signals=False))
        await (await parent.asubmit(1)).await_(timeout=60)
        ended.clear()
        began = time.perf_counter()
        await parent.asubmit(count)
        await ended.wait()
        report(seconds=time.perf_counter() - began)
        working.cancel()
        await asyncio.wait([working])


if __name__ == "__main__":
    asyncio.run(main())
