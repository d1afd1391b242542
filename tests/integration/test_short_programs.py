"""Programs that end at once after their last call, as scripts and cron jobs do, and close nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tasklib import TaskQueue

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
    done = subprocess.run([sys.executable, "-c", PROGRAM, database_url], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


WORKING = """
import sys, threading, time
from tasklib import TaskQueue, tq

url, kind = sys.argv[1:]
queue = TaskQueue(url)
begun, ending = threading.Event(), threading.Event()

def slow(payload):
    begun.set()
    ending.wait(180)
    time.sleep(0.5)  # the worker is asked to stop right after
    return "whole"

if kind == "tq":
    tq.init(queue)
    tq("slow").set_worker(slow).add({}).add({})
else:
    queue.register_handler("slow", slow)
    queue.enqueue("slow"), queue.enqueue("slow")
    threading.Thread(target=queue.run, daemon=kind == "daemon").start()
begun.wait(180)
threading._register_atexit(ending.set)  # the last that is registered is called first
"""


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.parametrize("kind", ["tq", "daemon", "thread"])
def test_a_worker_in_a_thread_drains_when_the_program_ends(database_url: str, kind: str) -> None:
    command = [sys.executable, "-c", WORKING, database_url, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")

    with TaskQueue(database_url) as queue:
        second, first = queue.list(name="slow")
        assert (first.state, first.result) == ("completed", {"value": "whole"})
        assert (second.state, second.attempts, second.error) == ("pending", 0, None)
        assert queue.workers() == []
