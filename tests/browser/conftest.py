"""A real Chromium, and pages that fail the test if anything on them went wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize, expect, sync_playwright

from tasklib import TaskQueue
from tests.browser.site import Site
from tools import chromium

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
SCREEN: ViewportSize = {"width": 1280, "height": 900}
PATIENCE = 180_000
"""Milliseconds: a busy machine may take its time, and a page that is broken does not get better."""
expect.set_options(timeout=PATIENCE)
TELL_VIOLATIONS = """document.addEventListener("securitypolicyviolation",
    (event) => console.error("policy violated:", event.violatedDirective, event.blockedURI, event.sample))"""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for all tests of this folder that run one after the other; no other test may run meanwhile, because
    Playwright keeps an event loop running in this thread."""
    path = chromium.find_or_install()
    if path is None:
        pytest.fail(f"there is no browser on this machine to see the dashboard with: {chromium.REMEDY}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service for all tests of a file, on a SQLite file, with a worker unless the file says WORKS = False."""
    works = getattr(request.module, "WORKS", True)
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", works=works) as site:
        yield site


@pytest.fixture
def queue(site: Site) -> TaskQueue:
    """The queue of the site, emptied before each test."""
    for schedule in site.queue.schedules():
        site.queue.remove_schedule(schedule.name)
    for pause in site.queue.pauses():
        site.queue.resume(pause.name)
    for task in site.queue.list(limit=1000):
        if task.completed_at is None:
            site.queue.cancel(task.id)
        site.queue.delete(task.id)
    return site.queue


@pytest.fixture(scope="module")
def done(site: Site) -> list[str]:
    """Tasks that ran, some of them badly."""
    ids = [site.queue.enqueue("email.send", {"to": f"user{n}"}).id for n in range(6)]
    ids += [site.queue.enqueue("payment.charge", {"order": n}).id for n in range(2)]
    for each in ids:
        site.queue.wait(each, timeout=180)
    return [str(each) for each in ids]


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """As if the browser was new: no cookies, nothing stored."""
    with new_context(browser) as context:
        yield context


@contextmanager
def new_context(browser: Browser) -> Generator[BrowserContext, None, None]:
    """A window of a person who prefers light and things that do not move."""
    context = browser.new_context(viewport=SCREEN, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    context.add_init_script(TELL_VIOLATIONS)
    yield context
    context.close()


class Window:
    """The page that the tests of a file use one after the other; what is compiled for one is there for the next."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self.page = context.new_page()
        self.wrong = watch(self.page)

    @contextmanager
    def lent(self) -> Generator[Page, None, None]:
        """The page, as if it was new: nothing is stored, allowed, answered by a test, or still open afterwards."""
        yield self.page
        found = [*self.wrong]
        self.page.unroute_all(behavior="wait")
        if self.page.url != "about:blank":
            self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.page.goto("about:blank")
        self._context.clear_cookies()
        self._context.clear_permissions()
        self.page.set_viewport_size(SCREEN)
        self.page.emulate_media(media="null", color_scheme="light", reduced_motion="reduce")
        self.wrong[:] = found


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Window]:
    with new_context(browser) as context:
        yield Window(context)


@pytest.fixture
def page(window: Window) -> Iterator[Page]:
    """A page on which no error may be logged, no script may fail, and no policy may be violated."""
    with window.lent() as page:
        yield page
    wrong = [*window.wrong]
    window.wrong.clear()
    assert wrong == []


@pytest.fixture
def tolerant_page(window: Window) -> Iterator[Page]:
    """A page on which errors are meant to happen: being refused, losing the service."""
    with window.lent() as page:
        yield page
    window.wrong.clear()


def watch(page: Page) -> list[str]:
    """What goes wrong on the page from now on; that the service refuses what a person typed is not wrong, nor that a
    task is asked for in the moment in which it is deleted."""
    wrong: list[str] = []

    def note(message: ConsoleMessage) -> None:
        place = message.location.get("url", "")
        gone = "status of 404" in message.text and re.search(r"/api/tasks/[0-9a-f-]{36}$", place)
        if message.type == "error" and "status of 400" not in message.text and not gone:
            wrong.append(f"{message.text} {place}")

    page.on("console", note)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    return wrong


def take_picture(page: Page, name: str, *, full_page: bool = False) -> None:
    """Leave a picture of the page in the folder TASKLIB_SCREENSHOTS, if somebody wants to look at it."""
    folder = os.environ.get("TASKLIB_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=full_page)
