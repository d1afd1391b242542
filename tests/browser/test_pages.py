"""Every page: in light and dark, on a screen and on a phone, readable by everybody, and without one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.site import Site
from tests.fixtures.waiting import eventually
from tools import dashboard

AXE = dashboard.SOURCES / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
View = tuple[str, Literal["light", "dark"]]
WIDTHS = {"desktop": 1280, "phone": 360}
EVERY_VIEW: tuple[View, ...] = (("desktop", "light"), ("desktop", "dark"), ("phone", "light"), ("phone", "dark"))
TWO_VIEWS: tuple[View, ...] = (("desktop", "light"), ("phone", "dark"))
PAGES = {
    "overview": ("/", "Last failures"),
    "overview-hour": ("/?range=1h", "Time waited"),
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

EMPTY = {
    "/": "No failures. Good.",
    "/tasks": "No tasks yet.",
    "/errors": "Nothing has failed for good.",
    "/workers": "No worker has ever been here.",
    "/schedules": "Nothing runs by itself yet.",
    "/types": "No type of task is known yet.",
    "/settings": "No worker is alive, so nothing is removed by itself.",
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


def violations(page: Page) -> list[str]:
    """What axe finds wrong, rule by rule."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]


def look_at(page: Page, picture: Path, views: tuple[View, ...] = EVERY_VIEW) -> list[str]:
    """What is wrong on a screen and on a phone, in light and dark; a picture of each is left."""
    found: list[str] = []
    for width, theme in views:
        page.set_viewport_size({"width": WIDTHS[width], "height": 900})
        page.emulate_media(color_scheme=theme)
        found += [f"{width}, {theme}: {each}" for each in violations(page)]
        if page.evaluate("document.documentElement.scrollWidth") > WIDTHS[width]:
            found.append(f"{width}: wider than the screen")
        page.screenshot(path=picture.with_name(f"{picture.name}-{width}-{theme}.png"), full_page=width == "phone")
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str, page: Page, site: Site, ids: dict[str, str], screenshots: Path) -> None:
    path, text = PAGES[name]
    page.goto(site.url + path.format(**ids))
    expect(page.get_by_text(text).first).to_be_visible()
    expect(page.get_by_text("Live", exact=True).first).to_be_visible()
    expect(page.locator(".bone")).to_have_count(0)

    assert look_at(page, screenshots / name) == []
    assert page.title().endswith("tasklib")


def test_a_page_on_which_there_is_nothing_says_what_to_do(page: Page, tmp_path: Path, screenshots: Path) -> None:
    with Site(f"sqlite:///{tmp_path / 'tasks.db'}", works=False) as empty:
        for path, text in EMPTY.items():
            page.goto(empty.url + path)
            expect(page.get_by_text(text)).to_be_visible()
            expect(page.locator(".bone")).to_have_count(0)
            assert look_at(page, screenshots / f"empty{path.replace('/', '-')}", TWO_VIEWS) == [], path


def test_a_page_that_cannot_be_read_says_so(context: BrowserContext, site: Site, screenshots: Path) -> None:
    page = context.new_page()
    page.route("**/api/*", lambda route: route.abort())
    page.route("**/api/*/**", lambda route: route.abort())
    for path in ("/tasks", "/workers"):
        page.goto(site.url + path)
        expect(page.get_by_role("alert").filter(has_text="The service cannot be reached.").first).to_be_visible()
        expect(page.get_by_text("No worker has ever been here.").or_(page.get_by_text("No tasks yet."))).to_have_count(
            0
        )
        assert look_at(page, screenshots / f"unreadable{path.replace('/', '-')}", TWO_VIEWS) == [], path
    page.unroute_all()
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Schedules").click()
    expect(page.get_by_role("button", name="New schedule"), "who it is was asked again").to_be_visible()


def test_on_a_phone_the_menu_leads_to_the_pages(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(f"{site.url}/")
    expect(page.get_by_role("link", name="Workers", exact=False).first).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Pages of the dashboard").get_by_role("link", name="Workers").click()
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    expect(page.get_by_role("navigation", name="Pages of the dashboard")).to_be_hidden()


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
