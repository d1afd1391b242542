"""Every page: in light and dark, on a screen and on a phone, readable by everybody, and without one error."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.acting import go
from tests.browser.conftest import new_context, take_picture, watch
from tests.browser.site import Site
from tests.fixtures.waiting import eventually
from tools import dashboard

HOLDABLE = re.compile(r"/api/(?!session|findings)")
HOLDABLE_OF_OVERVIEW = re.compile(r"/api/(?!session)")
COUNT_SHIFTS = """() => {
    window.shifted = 0;
    window.observing?.disconnect();
    window.observing = new PerformanceObserver(
        (list) => list.getEntries().forEach((each) => (window.shifted += each.value)));
    window.observing.observe({type: "layout-shift"});
}"""
"""Anew for each page that is shown: two observers on one window would count everything twice."""
STEADY = 0.1
"""How much may move: the part of the screen times how far, as browsers count it; what most people do not notice."""
AXE = dashboard.SOURCES / "node_modules" / "axe-core" / "axe.min.js"
FIND_VIOLATIONS = """async (rules) => {
    const found = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})
    return found.violations.map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`)
}"""
"""What is all right stays in the browser: to bring it here would take longer than to find it."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
View = tuple[str, Literal["light", "dark"]]
WIDTHS = {"desktop": 1280, "phone": 390, "wide": 1920}
EVERY_VIEW: tuple[View, ...] = (
    *(("desktop", "light"), ("desktop", "dark"), ("wide", "light"), ("wide", "dark")),
    *(("phone", "light"), ("phone", "dark")),
)
TWO_VIEWS: tuple[View, View] = (("desktop", "light"), ("phone", "dark"))
PAGES = {
    "overview": ("/", "Last failures"),
    "overview-hour": ("/?range=1h", "Queue wait"),
    "tasks": ("/tasks", "payment.charge"),
    "task-failed": ("/tasks/{failed}", "card declined"),
    "task-running": ("/tasks/{running}", "tile 4 of 10"),
    "task-waiting": ("/tasks/{waiting}", "Why isn’t it running?"),
    "errors": ("/errors", "payment.charge"),
    "workers": ("/workers", "Stuck threads"),
    "schedules": ("/schedules", "Europe/Paris"),
    "types": ("/types", "legacy.import"),
    "latency": ("/latency?range=1h&within=60", "Error budget left"),
    "lanes": ("/lanes", "Drag over a stretch of time"),
    "lanes-keys": ("/lanes?by=key", "1 attempt"),
    "report": ("/report?seconds=3600", "By type"),
    "questions": ("/questions", "No open questions."),
    "settings": ("/settings", "Audit log"),
}

EMPTY = {
    "/": "No failures. Good.",
    "/tasks": "No tasks yet.",
    "/errors": "Nothing has failed for good.",
    "/workers": "No workers yet.",
    "/schedules": "No schedules yet.",
    "/types": "No types yet.",
    "/lanes": "Nothing ran in this time.",
    "/report": "No task finished in this time.",
    "/questions": "No open questions.",
    "/settings": "No worker is alive, so nothing is removed automatically.",
    "/tasks/01890a5d-ac96-774b-bcce-b302099a8057": "No task has this id.",
}


@pytest.fixture(scope="module")
def ids(site: Site) -> dict[str, str]:
    """A queue in which everything is to be seen."""
    queue = site.queue
    for n in range(4):
        queue.enqueue("email.send", {"to": f"user{n}@example.com"}, tags={"batch": "daily"})
        queue.enqueue("payment.charge", {"order": n})
    queue.enqueue("email.send", {"to": "user7@example.com"}, concurrency_key="user-7")
    queue.enqueue("page.crawl", {"url": "https://example.com/"})
    waiting = queue.enqueue("legacy.import", {"file": "a.csv", "rows": [1, {"deep": [True, None]}]})
    queue.enqueue("email.send", {"to": "later@example.com"}, delay_seconds=3600, priority=5)
    queue.cancel(queue.enqueue("email.send", {"to": "never@example.com"}, delay_seconds=3600))
    failed = queue.enqueue("payment.charge", {"order": 99})
    running = queue.enqueue("image.resize", {"picture": "cat.jpg"})
    queue.add_schedule("report", task="email.send", cron="0 9 * * mon-fri", tz="Europe/Paris", kwargs={"to": "boss"})
    queue.pause("page.crawl", by="ada", reason="the site is down")
    queue.set_rate_limit(50, "email.send")
    eventually(lambda: queue.wait(failed, timeout=180) and queue.get(running).progress)
    return {"failed": str(failed), "running": str(running), "waiting": str(waiting)}


@pytest.fixture(scope="module")
def walk(browser: Browser) -> Iterator[Walk]:
    """One page for many tests: what is next is reached as by a link, without another start."""
    with new_context(browser) as context:
        yield Walk(context.new_page())


class Walk:
    """Somebody who goes from page to page while the service answers at once, later, or not at all."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong = watch(page)

    def go(self, site: Site, path: str) -> None:
        """Show a page of the site anew, even if it was shown before."""
        if not self.page.url.startswith(site.url):
            self.page.goto(f"{site.url}/")
        for each in ("/nowhere", path):
            go(self.page, each)

    @contextmanager
    def answers_held(self, path: str) -> Generator[None, None, None]:
        """Nothing that the page asks for is answered before the end, but for who it is and what the banners say, which
        the overview has none of."""
        holdable = HOLDABLE_OF_OVERVIEW if _is_overview(path) else HOLDABLE
        held: list[Route] = []
        holding = True
        self.page.route(holdable, lambda route: held.append(route) if holding else route.fallback())
        yield
        holding = False
        for route in held:
            route.fallback()
        self.page.unroute(holdable)

    @contextmanager
    def findings_kept(self, site: Site, path: str) -> Generator[None, None, None]:
        """What is wrong stays the same, whatever a busy machine brings; the overview has shown it, and keeps room for
        it."""
        findings = self.page.request.get(f"{site.url}/api/findings").text()
        self.page.route("**/api/findings", lambda route: route.fulfill(body=findings, content_type="application/json"))
        if _is_overview(path):
            self.go(site, path)
            expect(self.page.locator(".findings li").first).to_be_visible()
        yield
        self.page.unroute("**/api/findings")

    @contextmanager
    def answers_lost(self) -> Generator[None, None, None]:
        """Nothing that the page asks for arrives, until the end."""
        self.page.route("**/api/**", lambda route: route.abort())
        yield
        self.page.unroute("**/api/**")


def _is_overview(path: str) -> bool:
    return path.partition("?")[0] == "/"


def violations(page: Page, rules: list[str] = RULES) -> list[str]:
    """What axe finds wrong, rule by rule."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text() + "\n;0")
    found: list[str] = page.evaluate(FIND_VIOLATIONS, rules)
    return found


def look_at(page: Page, picture: str, views: tuple[View, ...] = TWO_VIEWS) -> list[str]:
    """What is wrong in these views, and whether it fits into any width; a picture of each view is taken."""
    found: list[str] = []
    seen: set[str] = set()
    for width, theme in views:
        page.set_viewport_size({"width": WIDTHS[width], "height": 900})
        page.emulate_media(color_scheme=theme)
        # Of the same width only the colours differ from theme to theme.
        rules = ["color-contrast"] if width in seen else RULES
        seen.add(width)
        found += [f"{width}, {theme}: {each}" for each in violations(page, rules)]
        take_picture(page, f"{picture}-{width}-{theme}", full_page=width == "phone")
    return found + too_wide(page)


def too_wide(page: Page) -> list[str]:
    """The widths of a screen into which the page does not fit."""
    found: list[str] = []
    for name, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{name}: wider than the screen")
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str, walk: Walk, site: Site, ids: dict[str, str]) -> None:
    path, text = PAGES[name]
    page = walk.page
    page.set_viewport_size({"width": WIDTHS["desktop"], "height": 900})
    with walk.findings_kept(site, path):
        with walk.answers_held(path):
            walk.go(site, path.format(**ids))
            expect(page.locator("[aria-busy=true] .bone").first, "what is on its way has its place").to_be_visible()
            expect(page.get_by_role("status").filter(has_text="Loading").first).to_be_attached()
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            take_picture(page, f"loading-{name}")
            page.evaluate(COUNT_SHIFTS)
        expect(page.get_by_text(text).first).to_be_visible()
        expect(page.get_by_text("Live", exact=True).first).to_be_visible()
        expect(page.locator(".bone")).to_have_count(0)
        assert page.evaluate("window.shifted") <= STEADY, "nothing jumps when it is there"

    assert look_at(page, name, (EVERY_VIEW[list(PAGES).index(name) % len(EVERY_VIEW)],)) == []
    assert page.title().endswith("tasklib")
    assert walk.wrong == []


@pytest.mark.chaos
@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_every_view(name: str, walk: Walk, site: Site, ids: dict[str, str]) -> None:
    path, text = PAGES[name]
    walk.go(site, path.format(**ids))
    expect(walk.page.get_by_text(text).first).to_be_visible()
    expect(walk.page.locator(".bone")).to_have_count(0)
    assert look_at(walk.page, name, EVERY_VIEW) == []


@pytest.fixture(scope="module")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A queue in which there is nothing, and nobody."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('empty') / 'tasks.db'}", works=False) as site:
        yield site


@pytest.mark.parametrize("views", [1, pytest.param(len(EVERY_VIEW), marks=pytest.mark.chaos)], ids=["short", "long"])
@pytest.mark.parametrize("path", EMPTY)
def test_a_page_says_that_it_cannot_be_read_and_what_to_do_when_there_is_nothing(
    path: str, views: int, walk: Walk, empty_site: Site
) -> None:
    """In the short form, axe looks at one of both, and at the other of the next page."""
    page, name, number = walk.page, path.replace("/", "-"), list(EMPTY).index(path)
    chosen = (EVERY_VIEW[number % len(EVERY_VIEW) :] + EVERY_VIEW)[:views]
    looks = (True, True) if views > 1 else (number % 2 == 0, number % 2 == 1)
    nothing = page.get_by_text(EMPTY[path])
    walk.go(empty_site, "/nowhere")
    with walk.answers_lost():
        walk.go(empty_site, path)
        expect(page.get_by_role("alert").filter(has_text="The service cannot be reached.").first).to_be_visible()
        expect(page.locator(".bone")).to_have_count(0)
        expect(nothing).to_have_count(0)
        expect(page.get_by_text("No changes in the last hour")).to_have_count(0)
        assert (look_at(page, f"unreadable{name}", chosen) if looks[0] else too_wide(page)) == []
    page.evaluate("document.querySelectorAll('.trouble button').forEach((button) => button.click())")
    expect(nothing).to_be_visible()
    assert (look_at(page, f"empty{name}", chosen) if looks[1] else too_wide(page)) == []


def test_a_page_whose_start_was_lost_heals(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    page.route("**/api/**", lambda route: route.abort())
    page.goto(f"{site.url}/tasks")
    expect(page.get_by_role("alert").filter(has_text="The service cannot be reached.").first).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("button", name="New task"), "who it is was asked again").to_be_visible()


def test_on_a_phone_the_menu_leads_to_the_pages(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(f"{site.url}/")
    expect(page.get_by_role("link", name="Workers", exact=False).first).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Pages of the dashboard").get_by_role("link", name="Workers").click()
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    expect(page.get_by_role("navigation", name="Pages of the dashboard")).to_be_hidden()


DIALOGS = {
    "/schedules": ["New schedule", "Delete report"],
    "/tasks": ["New task", "Limits", "Pause", "Keyboard help"],
    "/tasks/{waiting}": ["Prioritize"],
}


def test_dialogs_are_readable_by_everybody_too(walk: Walk, site: Site, ids: dict[str, str]) -> None:
    page, found = walk.page, list[str]()
    page.set_viewport_size({"width": WIDTHS["desktop"], "height": 900})
    for path, buttons in DIALOGS.items():
        walk.go(site, path.format(**ids))
        for button in buttons:
            page.get_by_role("button", name=button, exact=True).click()
            expect(page.locator("dialog")).to_be_visible()
            found += violations(page)
            take_picture(page, f"dialog-{button.lower().replace(' ', '-')}")
            page.keyboard.press("Escape")
            expect(page.locator("dialog")).to_have_count(0)
    assert found == []


def test_pages_that_do_not_exist_say_so(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/tasks")
    page.evaluate("history.pushState(null, '', '/nowhere'); dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.get_by_text("There is no such page.")).to_be_visible()
