"""Every page: in light and dark, on a screen and on a phone, readable by everybody, and without one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.fixtures.waiting import eventually
from tools import dashboard

AXE = dashboard.SOURCES / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = {
    "overview": ("/", "Last failures"),
    "tasks": ("/tasks", "payment.charge"),
    "task-failed": ("/tasks/{failed}", "card declined"),
    "task-running": ("/tasks/{running}", "tile 4 of 10"),
    "task-waiting": ("/tasks/{waiting}", "Why isn’t it running?"),
    "errors": ("/errors", "payment.charge"),
    "workers": ("/workers", "Stuck threads"),
    "schedules": ("/schedules", "Europe/Paris"),
    "types": ("/types", "legacy.import"),
    "settings": ("/settings", "Audit log"),
}


@pytest.fixture(scope="module")
def ids(site: Site) -> dict[str, str]:
    """A queue in which everything is to be seen."""
    queue = site.queue
    for n in range(4):
        queue.enqueue("email.send", {"to": f"user{n}@example.com"}, tags={"batch": "daily"})
        queue.enqueue("payment.charge", {"order": n})
    queue.enqueue("page.crawl", {"url": "https://example.com/"})
    waiting = queue.enqueue("legacy.import", {"file": "a.csv", "rows": [1, {"deep": [True, None]}]})
    queue.enqueue("email.send", {"to": "later@example.com"}, delay_seconds=3600, priority=5)
    queue.cancel(queue.enqueue("email.send", {"to": "never@example.com"}, delay_seconds=3600))
    failed = queue.enqueue("payment.charge", {"order": 99})
    running = queue.enqueue("image.resize", {"picture": "cat.jpg"})
    queue.add_schedule("report", task="email.send", cron="0 9 * * mon-fri", tz="Europe/Paris", kwargs={"to": "boss"})
    queue.pause("page.crawl", by="ada", reason="the site is down")
    queue.set_rate_limit(50, "email.send")
    eventually(lambda: queue.wait(failed, timeout=10) and queue.get(running).progress, timeout=20)
    return {"failed": str(failed), "running": str(running), "waiting": str(waiting)}


def violations(page: Page, only: list[str] = RULES) -> list[str]:
    """What axe finds wrong, rule by rule."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: rules})", only)
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]


@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str, page: Page, site: Site, ids: dict[str, str], screenshots: Path) -> None:
    path, text = PAGES[name]
    page.goto(site.url + path.format(**ids))
    expect(page.get_by_text(text).first).to_be_visible()
    expect(page.get_by_text("Live", exact=True).first).to_be_visible()
    expect(page.locator(".bone")).to_have_count(0)

    found = violations(page)
    page.screenshot(path=screenshots / f"{name}-light.png")
    page.emulate_media(color_scheme="dark")
    found += violations(page, ["color-contrast"])
    page.screenshot(path=screenshots / f"{name}-dark.png")
    page.set_viewport_size({"width": 360, "height": 780})
    found += violations(page, ["target-size", "scrollable-region-focusable", "empty-table-header", "label", "list"])
    page.screenshot(path=screenshots / f"{name}-phone.png", full_page=True)

    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.title().endswith("tasklib")


def test_dialogs_are_readable_by_everybody_too(page: Page, site: Site, ids: dict[str, str], screenshots: Path) -> None:
    found: list[str] = []
    page.goto(f"{site.url}/schedules")
    for button in ("New schedule", "Delete report"):
        page.get_by_role("button", name=button).click()
        found += violations(page)
        page.keyboard.press("Escape")
    page.goto(f"{site.url}/tasks")
    for button in ("New task", "Limits", "Pause", "Keyboard help"):
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator("dialog")).to_be_visible()
        found += violations(page)
        page.screenshot(path=screenshots / f"dialog-{button.lower().replace(' ', '-')}.png")
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    assert found == []


def test_pages_that_do_not_exist_say_so(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/tasks")
    page.evaluate("history.pushState(null, '', '/nowhere'); dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.get_by_text("There is no such page.")).to_be_visible()
