"""How long a person waits for the first rows of a list, from the address to the screen, over very many tasks.

    python -m bench first_rows [--rows 10000000] [--rounds 5] [--database-url URL]

A real Chromium opens nine lists in turn while a worker runs a hundred tasks a second.  The rows are those of
`http_lists`: one in a hundred waits, all others have ended.  `--database-url` measures a database that was filled
before, or fills it if it is empty and keeps it.  Exits with 1 if p95 is above 1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

from bench.parts.http_create import serving
from bench.parts.http_lists import database, p95
from bench.report import middle, show
from tasklib import TaskQueue
from tools import chromium

PROMISED_SECONDS = 1.0
WAITING = 100
"""Of so many tasks, one waits."""
BATCH, PAUSE_SECONDS = 10, 0.1
LISTS = {
    "all": "/tasks",
    "one type": "/tasks?type=old.3",
    "completed": "/tasks?status=completed",
    "completed, of a day": "/tasks?status=completed&since=24h",
    "failed": "/tasks?status=failed",
    "failed, one type": "/tasks?type=old.7&status=failed",
    "cancelled or buried": "/tasks?status=cancelled&status=buried",
    "pending or delayed": "/tasks?status=pending&status=delayed",
    "processing": "/tasks?status=processing",
}
FIRST_ROW = """window.firstRow = new Promise((tell) => {
    new MutationObserver((_, watch) => {
        if (!document.querySelector("tr[data-row]")) return;
        watch.disconnect();
        requestAnimationFrame(() => tell(performance.now()));
    }).observe(document, {subtree: true, childList: true});
})"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--database-url", help="a database with a schema named bench, filled if that is not there")
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> bool | None:
    """Print p50, p95 and the longest of each list and of all; whether all together kept the promise."""
    if given.work is not None:
        work(given.work)
        return None
    path = chromium.find()
    if path is None:
        raise SystemExit(f"there is no browser on this machine: {chromium.REMEDY}")
    waiting = given.rows // WAITING
    with database(given.database_url, given.postgres, waiting, given.rows - waiting) as url:
        load = os.getloadavg()[0]
        with worker(url), serving(url) as port, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
            took = measure(browser.new_page(), f"http://127.0.0.1:{port}", given.rounds)
            browser.close()
    every = [seconds for times in took.values() for seconds in times]
    rows = [figures(name, times) for name, times in [*took.items(), ("together", every)]]
    title = f"first rows of {given.rows:,}, {given.rounds} times each, seconds; load {load:.1f} before"
    show(title, ("list", "p50", "p95", "most"), rows)
    return p95(every) <= PROMISED_SECONDS


def figures(name: str, times: list[float]) -> tuple[str, ...]:
    return name, *(f"{each:.2f}" for each in (middle(times), p95(times), max(times)))


def measure(page: Page, url: str, rounds: int) -> dict[str, list[float]]:
    """Seconds until a list's first row is painted, all lists in turn, after one round that nobody counts."""
    page.add_init_script(FIRST_ROW)
    took: dict[str, list[float]] = {name: [] for name in LISTS}
    for number in range(rounds + 1):
        for name, path in LISTS.items():
            page.goto(url + path)
            seconds = float(page.evaluate("window.firstRow")) / 1000
            if number:
                took[name].append(seconds)
    return took


@contextmanager
def worker(url: str) -> Iterator[None]:
    """A worker in a process of its own, from when it runs the first task."""
    command = [sys.executable, "-m", "bench", "first_rows", f"--work={url}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise SystemExit("the worker did not start")
        yield
    finally:
        process.terminate()
        process.wait()


def work(url: str) -> None:
    """Run a hundred tasks a second, and one that goes on, until told to stop."""
    over = threading.Event()
    with TaskQueue(url) as queue:

        @queue.task
        async def endless() -> None:
            print("at work", flush=True)
            await asyncio.Event().wait()

        @queue.task
        async def short(n: int) -> int:
            return n

        def submit() -> None:
            endless.submit()
            while not over.wait(PAUSE_SECONDS):
                queue.submit_new([queue.new_by_name("short", {"n": n}) for n in range(BATCH)])

        submitting = threading.Thread(target=submit)
        submitting.start()
        queue.run(grace_seconds=0)
        over.set()
        submitting.join()
