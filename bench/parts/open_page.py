"""How many bytes a second an open list of tasks costs while nothing changes.

    python -m bench open_page [--tasks 1000] [--types 240] [--seconds 20]

A real Chromium shows `/tasks`; what the service sends is counted on the wire, headers included.  Exits with 1 above
20 KB in a second.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from bench.parts.http_create import serving
from bench.report import show
from tasklib import TaskQueue
from tools import chromium

PROMISED_BYTES = 20_000
PAGES = ("/tasks", "/", "/errors", "/workers", "/lanes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this measurement."""
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--types", type=int, default=240)
    parser.add_argument("--seconds", type=int, default=20)


def run(options: argparse.Namespace) -> bool:
    """Measure each page; False if the list of tasks costs more than promised."""
    path = chromium.find()
    if path is None:
        raise SystemExit(f"there is no browser on this machine: {chromium.REMEDY}")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'tasks.db'}"
        with TaskQueue(url) as queue:
            for n in range(options.tasks):
                payload = {"order": n, "text": "x" * 200}
                queue.enqueue(f"type.{n % options.types}", payload, delay_seconds=86_400)
        with serving(url) as port, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
            found = {
                each: measured(browser.new_page(), f"http://127.0.0.1:{port}{each}", options.seconds) for each in PAGES
            }
            browser.close()
    rows = [(each, f"{opening / 1000:.1f} KB", f"{later / 1000:.2f} KB/s") for each, (opening, later) in found.items()]
    show(f"{options.tasks} tasks of {options.types} types, nothing changes", ["page", "to open it", "afterwards"], rows)
    return found["/tasks"][1] <= PROMISED_BYTES


def measured(page: Page, url: str, seconds: int) -> tuple[float, float]:
    """Bytes until the page has settled, and bytes in each second after that."""
    sent: list[float] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
    session.on("Network.dataReceived", lambda event: sent.append(event["encodedDataLength"]))
    page.goto(url)
    page.wait_for_timeout(3000)
    opening = sum(sent)
    sent.clear()
    page.wait_for_timeout(seconds * 1000)
    page.close()
    return opening, sum(sent) / seconds
