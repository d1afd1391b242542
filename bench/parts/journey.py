"""One program from a file to a fleet: the same tasks on SQLite, PostgreSQL, PgBouncer and a pair that fails over.

docs/production/from-one-file-to-a-fleet.md prints what it says.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.pooler import PROGRAM, pgbouncer
from bench.server import durable_server
from tasklib import Config, TaskQueue
from tasklib.errors import StorageError
from tools.postgres import available
from tools.postgres.pair import Pair

MODULE = "tests.cluster.bodies"
NAME, PAYLOAD = "add", {"a": 1, "b": 2}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=1000, help="tasks that wait while the queue moves")


def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = f"sqlite:///{Path(folder) / 'tasks.db'}"
        step("SQLite, one worker", throughput(file, options.tasks, "--processes", "1"))
        with durable_server(options.postgres) as server:
            step(f"moving {options.waiting:,} waiting tasks", moving(file, server.url, options.waiting))
            step("PostgreSQL, one worker", throughput(server.url, options.tasks, "--processes", "1"))
            step("PostgreSQL, two workers", throughput(server.url, options.tasks, "--processes", "2"))
            if PROGRAM is not None:
                with pgbouncer(server, sessions=10, clients=200) as url:
                    found = throughput(url, options.tasks, "--processes", "2", listen_url=server.url)
                    step("PgBouncer, two workers", found)
    with Pair(available()[0]) as pair:
        step("a synchronous standby", throughput(pair.url, options.tasks, "--processes", "2"))
        step("the primary is killed", failing_over(pair))


def step(what: str, figure: str) -> None:
    print(f"{what:28} {figure}", flush=True)


def throughput(url: str, tasks: int, *words: str, listen_url: str | None = None) -> str:
    """Tasks a second, from the first submission to the last result."""
    with queue_on(url, listen_url) as queue, working(url, *words, listen_url=listen_url):
        submit_and_wait(queue, 20)
        began = time.perf_counter()
        submit_and_wait(queue, tasks)
        return f"{tasks / (time.perf_counter() - began):,.0f} tasks/s"


def moving(source: str, target: str, waiting: int) -> str:
    """Seconds that `tasklib copy` takes, with tasks that wait; they run on the new database."""
    with queue_on(source) as queue:
        queue.submit_new([queue.new_by_name(NAME, PAYLOAD) for _ in range(waiting)])
        known = queue.count()
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tasklib", "copy", source, target], check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - began
    with queue_on(target) as queue, working(target, "--processes", "1"):
        wait_for_all(queue)
        assert queue.count() == known
    return f"{took:.1f} s, {known:,} tasks in all, none lost"


def failing_over(pair: Pair) -> str:
    """Seconds from the kill of the primary until a new task has run, with the worker that was there before."""
    with queue_on(pair.url) as queue, working(pair.url, "--processes", "2"):
        submit_and_wait(queue, 20)
        began = time.perf_counter()
        pair.fail_over()
        promoted = time.perf_counter()
        submit_again(lambda: submit_and_wait(queue, 1))
        return f"next task done {time.perf_counter() - began:.1f} s later, {promoted - began:.1f} s of that to promote"


def submit_again(submit: Callable[[], None]) -> None:
    """As a producer does that gets an error while the primary is gone."""
    while True:
        try:
            return submit()
        except StorageError:
            time.sleep(0.05)


def submit_and_wait(queue: TaskQueue, count: int) -> None:
    queue.submit_new([queue.new_by_name(NAME, PAYLOAD) for _ in range(count)])
    wait_for_all(queue)


def wait_for_all(queue: TaskQueue) -> None:
    """Asked for all at once: asking for each would be measured instead."""
    while queue.count(state=["pending", "running"]):
        time.sleep(0.02)


@contextmanager
def queue_on(url: str, listen_url: str | None = None) -> Iterator[TaskQueue]:
    with TaskQueue(Config(url, listen_url=listen_url)) as queue:
        queue.migrate()
        yield queue


@contextmanager
def working(url: str, *words: str, listen_url: str | None = None) -> Iterator[None]:
    variables = {"DATABASE_URL": url} | ({"TASKLIB_LISTEN_URL": listen_url} if listen_url else {})
    command = [sys.executable, "-m", "tasklib", "worker", MODULE, "--log-level", "error", *words]
    with subprocess.Popen(
        command,
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.terminate()
