"""The page follows what happens by itself, says when it cannot, and catches up; under a prefix as well."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from playwright.sync_api import Page, expect

from tasklib.http.live import cache
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.reading.lists import FEW_ROWS
from tests.browser.site import Site
from tests.fixtures.waiting import eventually

AT_ITS_END = "log => log.scrollHeight - log.scrollTop - log.clientHeight < 8"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Mounted in another application, under a path of its own."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", prefix="/our/queue") as site:
        yield site


def test_a_task_is_followed_from_its_start_to_its_end(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/tasks?search=cat.jpg")
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    expect(page.get_by_role("button", name="Live")).to_be_visible()

    site.gate.clear()
    site.queue.enqueue("image.resize", {"picture": "cat.jpg"})
    row = page.locator("tr[data-row]")
    expect(row.get_by_text("Processing")).to_be_visible()
    row.get_by_role("link", name="image.resize").click()
    expect(page.get_by_text("tile 4 of 10")).to_be_visible()
    expect(page.get_by_text("resizing cat.jpg")).to_be_visible()
    log = page.get_by_role("log")
    assert log.evaluate(f"log => log.scrollHeight > log.clientHeight && ({AT_ITS_END})(log)"), (
        "opens at its newest line"
    )
    site.gate.set()
    expect(log).to_contain_text("saved")
    eventually(lambda: log.evaluate(AT_ITS_END))
    expect(page.get_by_role("heading", name="image.resize").get_by_text("Completed")).to_be_visible()
    expect(page.get_by_role("img", name="attempt 1 completed")).to_be_visible()


def test_a_running_task_is_asked_to_stop(page: Page, site: Site) -> None:
    site.gate.clear()
    task_id = site.queue.enqueue("image.resize", {"picture": "dog.jpg"}).id
    eventually(lambda: site.queue.get(task_id).state == "running")
    page.goto(f"{site.url}/tasks/{task_id}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Its worker is asked to stop it")
    page.get_by_role("button", name="Cancel 1 task").click()
    expect(page.get_by_role("heading", name="image.resize").get_by_text("Cancelled")).to_be_visible()


def test_a_worker_tells_how_it_is(page: Page, site: Site) -> None:
    site.gate.clear()
    site.queue.enqueue("disk.scan", {"disk": "sda"})
    page.goto(f"{site.url}/workers")
    fact = page.locator(".vitals > div")
    expect(fact.filter(has_text="Memory")).to_contain_text("MB")
    expect(fact.filter(has_text="Stuck threads").get_by_text("1", exact=True)).to_be_visible()
    page.goto(f"{site.url}/settings")
    expect(page.get_by_text("1 worker removes finished tasks: completed=7d")).to_be_visible()
    site.gate.set()
    page.goto(f"{site.url}/workers")
    expect(fact.filter(has_text="Stuck threads").get_by_text("0", exact=True)).to_be_visible()


def test_the_charts_move(page: Page, site: Site) -> None:
    site.gate.set()
    page.goto(f"{site.url}/")
    expect(page.locator(".uplot")).to_have_count(2)
    throughput = page.get_by_role("img", name="Throughput")
    before = throughput.get_attribute("aria-label")
    for n in range(20):
        site.queue.enqueue("email.send", {"to": f"user{n}"})
    expect(throughput).not_to_have_attribute("aria-label", before or "")
    page.get_by_role("button", name="1 h", exact=True).click()
    expect(page).to_have_url(f"{site.url}/?range=1h")
    expect(page.locator(".uplot").first).to_be_visible()
    expect(page.get_by_role("img", name="Run time")).to_be_visible()


def test_a_page_that_is_held_stands_still(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/tasks")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Updates paused")).to_be_visible()
    page.get_by_role("button", name="Updates paused").click()
    expect(page.get_by_role("button", name="Live")).to_be_visible()


@pytest.mark.parametrize(
    "path, shows, few",
    [
        ("/tasks?type=swift.row", "tr[data-row]", FEW_ROWS),
        ("/", ".card.pending", FEW_ROWS),
        ("/", ".card.pending", -1),
        ("/tasks/{id}", "h1 .badge", FEW_ROWS),
    ],
    ids=["list", "numbers", "numbers-of-a-large-queue", "task"],
)
def test_a_change_comes_to_the_page_by_itself(
    page: Page, site: Site, path: str, shows: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "FEW_ROWS", few)
    queue = site.queue
    task_id = queue.enqueue("swift.row", {}, delay_seconds=3600).id
    page.goto(f"{site.url}{path.format(id=task_id)}")
    expect(page.locator(shows).first).to_be_visible()
    expect(page.locator(".connection.live")).to_be_visible()
    turns = count()

    def change() -> None:
        if path != "/tasks/{id}":
            queue.enqueue("swift.row", {}, delay_seconds=3600)
        elif next(turns) % 2:
            queue.retry(task_id)
        else:
            queue.cancel(task_id)

    for _ in range(3):
        before = text_of(page, shows)
        change()
        eventually(lambda before=before: text_of(page, shows) != before)


def test_numbers_that_are_not_of_this_moment_say_so(page: Page, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "FEW_ROWS", -1)
    monkeypatch.setattr(cache, "QUICK_SECONDS", 0.0)
    page.goto(f"{site.url}/")
    expect(page.get_by_text("Counts up to 5 s old")).to_be_visible()


def text_of(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_what_cannot_be_read_is_not_said_to_be_empty(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    page.route("**/api/tasks?*", lambda route: route.abort())
    page.goto(f"{site.url}/")
    failures = page.locator("section").filter(has=page.get_by_role("heading", name="Last failures"))
    expect(failures.get_by_role("alert")).to_contain_text("The service cannot be reached.")
    expect(failures.get_by_text("No failures")).to_have_count(0)
    page.unroute("**/api/tasks?*")
    # It may have been asked for again by itself meanwhile.
    page.evaluate("document.querySelectorAll('.trouble button').forEach((button) => button.click())")
    expect(failures.get_by_role("alert")).to_have_count(0)
    expect(failures.get_by_text("No failures. Good.").or_(failures.locator("li")).first).to_be_visible()


def test_a_lost_connection_is_said_and_heals(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    page.goto(f"{site.url}/tasks?type=late.task")
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    expect(page.get_by_role("button", name="Live")).to_be_visible()

    site.stop()
    expect(page.get_by_text("Connection lost.")).to_be_visible()
    site.queue.enqueue("late.task", {})
    site.start()
    expect(page.get_by_text("Connection lost.")).to_have_count(0)
    expect(page.locator("tr[data-row]").get_by_text("late.task")).to_be_visible()
