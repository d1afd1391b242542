"""Run the tasks that `python examples/simple.py` submitted, until Ctrl-C.

python examples/worker.py                 # or, without this file: tasklib worker simple   (in this folder)
python examples/worker.py --until-idle    # ends by itself when nothing is left to do; also EXAMPLE_UNTIL_IDLE=1
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from simple import config  # importing the module defines its tasks

import tasklib
from tasklib import TaskWorker


async def main(*, until_idle: bool) -> None:
    """Work with four tasks at once; SIGTERM and Ctrl-C let running ones finish."""
    worker = TaskWorker(config, concurrency=4, poll_interval_seconds=1.0)
    idle = asyncio.create_task(stop_when_idle(worker)) if until_idle else None
    await worker.run()
    if idle is not None:
        await idle
    await tasklib.default_queue().aclose()


async def stop_when_idle(worker: TaskWorker) -> None:
    """Stop the worker once no task waits, runs or will be retried."""
    live = ["pending", "running", "retrying"]
    while await tasklib.default_queue().acount(state=live):  # noqa: ASYNC110 looking now and then is enough here
        await asyncio.sleep(0.1)
    worker.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(until_idle="--until-idle" in sys.argv or bool(os.getenv("EXAMPLE_UNTIL_IDLE"))))
