"""Programs that end at once after their last call, as scripts and cron jobs do, and close nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, faulthandler, sys
from tasklib import TaskQueue

queue = TaskQueue(sys.argv[1])

async def main():
    for _ in range(2):
        await queue.aenqueue("job")

for _ in range(20):
    faulthandler.dump_traceback_later(20, exit=True)
    asyncio.run(main())
"""


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_an_event_loop_ends_although_nobody_closed_the_queue(database_url: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, database_url], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
