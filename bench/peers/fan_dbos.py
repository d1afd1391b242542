"""Workflows on a queue of DBOS, awaited by another: its executor and who starts it, in one process."""

from __future__ import annotations

import asyncio
import time

from dbos import DBOS

from bench.peers.reporting import given, report

command, url, count = given()
DBOS(config={"name": "fan", "system_database_url": url, "log_level": "ERROR", "sys_db_pool_size": 20})


@DBOS.workflow()
async def child(n: int) -> int:
    return n


@DBOS.workflow()
async def parent(children: int) -> float:
    queue = await DBOS.retrieve_queue_async("children")
    assert queue is not None
    handles = [await queue.enqueue_async(child, n) for n in range(children)]
    for handle in handles:
        await handle.get_result()
    return time.perf_counter()


async def main() -> None:
    DBOS.launch()
    await DBOS.register_queue_async("children", polling_interval_sec=0.1)
    await (await DBOS.start_workflow_async(parent, 1)).get_result()
    began = time.perf_counter()
    at = await (await DBOS.start_workflow_async(parent, count)).get_result()
    report(seconds=at - began)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
