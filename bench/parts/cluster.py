"""Task bodies on Dask and Ray beside calling the engine directly: tasks per second, and the time of one.

Needs the engine: run it in the environment that `make test-cluster` makes, by .versions/cluster/bin/python.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.server import durable_server
from tasklib import Config, TaskQueue

SLOTS = 2
WARM_UP = 20
ALONE = 50
"""Tasks that are run one after the other, to see how long one takes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engines", nargs="+", choices=("dask", "ray"), default=["dask", "ray"])
    parser.add_argument("--tasks", type=int, default=2000)


def run(options: argparse.Namespace) -> None:
    for engine in options.engines:
        with {"dask": dask_cluster, "ray": ray_cluster}[engine]() as (address, call_all):
            report(f"{engine}, called directly", options.tasks, measure(call_all, options.tasks))
            with durable_server(options.postgres) as server, TaskQueue(Config(server.url)) as queue:
                queue.migrate()
                with worker(server.url, engine, address):
                    report(
                        f"{engine}, as tasklib tasks", options.tasks, measure(lambda n: submit(queue, n), options.tasks)
                    )


def measure(call_all: Callable[[int], None], tasks: int) -> tuple[float, float]:
    """Seconds for all at once, and the median of one alone."""
    call_all(WARM_UP)
    began = time.perf_counter()
    call_all(tasks)
    whole = time.perf_counter() - began
    alone = []
    for _ in range(ALONE):
        began = time.perf_counter()
        call_all(1)
        alone.append(time.perf_counter() - began)
    return whole, statistics.median(alone)


def report(what: str, tasks: int, measured: tuple[float, float]) -> None:
    whole, alone = measured
    print(f"{what:24} {tasks / whole:8,.0f} tasks/s   one alone {alone * 1000:6.1f} ms", flush=True)


def submit(queue: TaskQueue, count: int) -> None:
    """Submit so many and wait until all have run."""
    ids = queue.submit_new([queue.new_by_name("add", {"a": 1, "b": 2}) for _ in range(count)])
    for task_id in ids if count < WARM_UP else reversed(ids):
        queue.wait(task_id, timeout=600)


@contextmanager
def worker(url: str, engine: str, address: str) -> Iterator[None]:
    words = ["worker", "tests.cluster.bodies", "--executor", engine, "--scheduler", address, "--log-level", "error"]
    environment = os.environ | {"DATABASE_URL": url}
    command = [sys.executable, "-m", "tasklib", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def dask_cluster() -> Iterator[tuple[str, Callable[[int], None]]]:
    dask = importlib.import_module("distributed")
    with (
        dask.LocalCluster(n_workers=SLOTS, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        dask.Client(cluster) as client,
    ):
        yield cluster.scheduler_address, lambda count: client.gather(client.map(add, range(count), pure=False))


@contextmanager
def ray_cluster() -> Iterator[tuple[str, Callable[[int], None]]]:
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(add)
    try:
        address = ray.get_runtime_context().gcs_address
        yield address, lambda count: ray.get([remote.remote(each) for each in range(count)])
    finally:
        ray.shutdown()


def add(number: int) -> int:
    """What the tasks do."""
    return number + 2
