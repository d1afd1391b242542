"""What the page says is so, also when something is broken: no green light without news, no number changed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tasklib import TaskQueue
from tasklib.storage.operations.workers import recover_from
from tests.browser.acting import go
from tests.browser.conftest import new_context
from tests.browser.site import Site
from tests.fixtures.waiting import eventually
from tools.postgres import Server, available, start

WORKS = False


def test_a_service_that_says_nothing_is_lost(browser: Browser, site: Site) -> None:
    """Frozen, not gone: the connection stays open, and no error ever comes."""
    frozen, thaw = threading.Event(), threading.Event()

    def freeze() -> None:
        frozen.set()
        thaw.wait()

    with new_context(browser) as context:
        page = context.new_page()
        page.clock.install()
        page.goto(f"{site.url}/tasks")
        expect(page.get_by_role("button", name="Live")).to_be_visible()
        site.loop.call_soon_threadsafe(freeze)
        assert frozen.wait(180)
        try:
            page.clock.run_for(12_500)
            expect(page.get_by_text("Connection lost.")).to_be_visible()
            expect(page.get_by_role("button", name="Live")).to_have_count(0)
        finally:
            thaw.set()
        page.get_by_role("button", name="Try now").click()
        expect(page.get_by_role("button", name="Live")).to_be_visible()
        expect(page.get_by_text("Connection lost.")).to_have_count(0)


def test_a_beat_comes_while_nothing_changes(page: Page, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.http.live.live_stats.BEAT_SECONDS", 0.05)
    page.goto(f"{site.url}/tasks")
    page.evaluate("""() => { window.beats = 0;
        new EventSource("/api/events").addEventListener("beat", () => window.beats++) }""")
    eventually(lambda: page.evaluate("window.beats") >= 3)
    expect(page.get_by_role("button", name="Live")).to_be_visible()


@pytest.fixture
def server() -> Iterator[Server]:
    with start(available()[-1]) as server:
        yield server


def test_a_database_that_is_away_has_a_state_of_its_own(
    browser: Browser, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with Site(server.url, auth="local", works=False) as site, new_context(browser) as context:
        site.queue.enqueue("email.send", {"to": "ada"})
        page = context.new_page()
        page.goto(f"{site.url}/")
        expect(page.locator(".card.pending .card-number")).to_have_text("1")
        server.halt("immediate")
        banner = page.get_by_role("alert").filter(has_text="The database does not answer.")
        expect(banner.first).to_contain_text("What you see is from")
        expect(page.get_by_role("button", name="No database")).to_be_visible()

        answer = page.goto(f"{site.url}/tasks")
        assert answer is not None
        assert answer.status == 200
        expect(banner.first, "the page itself comes, and says what is wrong").to_be_visible()
        for secret in (str(server.port), "127.0.0.1", "postgres"):
            assert secret not in re.sub(r"localhost:\d+", "", page.inner_text("body")), secret

        server.restart()
        expect(banner).to_have_count(0)
        expect(page.locator("tr[data-row]")).to_have_count(1)
        logged = [record.getMessage() for record in caplog.records if record.exc_info]
        assert logged == [], "no traceback for something that is not a bug"


NUMBERS = '{"id": 9007199254740993, "price": 1.10, "tiny": 1e-7, "list": [12345678901234567890]}'


def test_a_number_stays_as_it_was_written(page: Page, site: Site, queue: TaskQueue) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stored = json.loads(NUMBERS)
    task_id = queue.enqueue("order.ship", stored).id
    page.goto(f"{site.url}/tasks")
    expect(page.locator("tr[data-row] .preview")).to_contain_text("9007199254740993")
    go(page, f"/tasks/{task_id}")
    shown = page.get_by_role("group", name="payload")
    for text in ("9007199254740993", "12345678901234567890"):
        expect(shown).to_contain_text(text)
    page.get_by_role("button", name="Copy the payload").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == stored

    page.get_by_role("button", name="Duplicate & edit").click()
    assert json.loads(page.get_by_label("Payload (JSON)").input_value()) == stored
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).not_to_have_url(f"{site.url}/tasks/{task_id}")
    assert queue.get(page.url.rpartition("/")[2]).kwargs == stored


def test_a_lost_worker_leaves_a_trace_and_raises_a_banner(page: Page, site: Site, queue: TaskQueue) -> None:
    for n in range(3):
        queue.enqueue("email.send", {"n": n})
    worker = {"workerId": "w-lost", "host": "host-7", "types": ["email.send"], "concurrency": 4}
    with httpx.Client(base_url=site.url, timeout=180) as http:
        instance = http.post("/api/workers", json=worker).json()["instance"]
        assert len(http.post(f"/api/workers/{instance}/claim", json={"limit": 2}).json()["tasks"]) == 2
    page.goto(f"{site.url}/workers")
    expect(page.get_by_text("w-lost")).to_be_visible()
    queue.database.run(lambda: recover_from(UUID(instance), queue.config.backoff))

    banner = page.get_by_role("status").filter(has_text="Worker w-lost on host-7 was lost")
    expect(banner).to_contain_text("with 2 tasks, which run again")
    row = page.get_by_role("row").filter(has_text="w-lost")
    expect(row).to_contain_text("host-7")
    expect(row).to_contain_text("Lost")
    expect(row.locator(".number")).to_have_text("2")
    banner.get_by_role("button", name="Dismiss").click()
    expect(banner).to_have_count(0)
    page.reload()
    expect(row).to_be_visible()
    expect(banner).to_have_count(0)
    go(page, "/lanes")
    expect(page.get_by_role("img", name=re.compile("1 lane with 2 attempts .*, 2 lost;"))).to_be_visible()
    expect(page.locator(".lane-picture title").filter(has_text="w-lost was lost at")).to_have_count(1)


def test_now_says_what_is_broken_and_what_to_press(page: Page, site: Site, queue: TaskQueue) -> None:
    page.goto(f"{site.url}/")
    now = page.locator("section.now")
    expect(now.get_by_text("Nothing is wrong.").or_(now.locator("li")).first).to_be_visible()
    queue.enqueue("email.send", {"to": "ada"})
    queue.pause("email.send", by="ada", reason="provider is down")
    finding = now.locator("li").filter(has_text="email.send is paused by ada: provider is down")
    expect(finding).to_be_visible()
    finding.get_by_role("button", name="Resume email.send").click()
    expect(finding).to_have_count(0)
    assert queue.pauses() == []
    expect(now.locator("li.critical")).to_contain_text("No worker is running, 1 task waiting")
    expect(now.locator(".changes")).to_contain_text("resumed email.send")
    now.get_by_role("link", name="Waiting tasks").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)


POLLS = 6
BUDGET = 20_000
"""Bytes that a list may cost in a second while nothing changes."""
PAUSE_SECONDS = 0.8
"""From one reading of the list to the next, at least."""


def test_a_list_costs_little_while_nothing_changes(page: Page, site: Site, queue: TaskQueue) -> None:
    for n in range(60):
        queue.enqueue(f"type.{n % 30}", {"n": n, "text": "x" * 500}, delay_seconds=3600)
    sent: list[float] = []
    lists = 0

    def began(event: dict[str, Any]) -> None:
        nonlocal lists
        lists += "/api/tasks?" in event["request"]["url"]

    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
    session.on("Network.dataReceived", lambda event: sent.append(event["encodedDataLength"]))
    session.on("Network.requestWillBeSent", began)
    page.goto(f"{site.url}/tasks")
    expect(page.locator("tr[data-row]")).to_have_count(50)
    first = sum(sent)
    assert first > 50 * 500, "the list itself is large"
    sent.clear()
    lists = 0
    eventually(lambda: page.evaluate("1") and lists >= POLLS)
    assert sum(sent) <= POLLS * PAUSE_SECONDS * BUDGET
