"""Views over the whole queue, and over one workflow: what ran where and when, and what people are asked."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tasklib.service import pages
from tasklib.storage.operations.reading.scan import Bounds
from tests.browser.acting import go
from tests.browser.conftest import take_picture
from tests.browser.site import FAILING, Site
from tests.browser.test_pages import look_at, too_wide, violations
from tests.fixtures.waiting import eventually


def test_a_search_goes_on_by_itself_and_says_how_far_it_is(
    page: Page, site: Site, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "JUDGED", Bounds(1, reach=1, farthest=1, passing=1))
    page.goto(f"{site.url}/tasks")
    page.get_by_role("searchbox").fill("args.order:0 duration:<1h")
    expect(page.get_by_role("row", name="payment.charge")).to_have_count(1)
    expect(page.locator(".scan")).to_have_count(0)
    held: list[Route] = []
    holding = True
    further = re.compile(r"/api/tasks\?.*cursor=")
    page.route(further, lambda route: held.append(route) if holding else route.fallback())
    page.get_by_role("searchbox").fill("args.order:none")
    searching = page.get_by_role("status").filter(has_text="of the queue looked through, newest first; no match so far")
    expect(searching).to_be_visible()
    holding = False
    for route in held:
        route.fallback()
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    page.get_by_role("searchbox").fill("duration:soon")
    expect(page.get_by_text("duration:soon is no time")).to_be_visible()


@pytest.fixture(scope="module")
def asking(site: Site) -> str:
    """A workflow that has recorded a step, has had children, and waits for an answer."""
    task_id = site.queue.enqueue("parcel.ship", {"order": 42}).id
    eventually(lambda: (site.queue.get(task_id).waits_for or "").startswith("answer"))
    return str(task_id)


def test_a_workflow_shows_its_steps_over_time_and_its_children(page: Page, site: Site, asking: str) -> None:
    page.goto(f"{site.url}/tasks/{asking}")
    rows = page.locator(".waterfall li")
    expect(rows.filter(has_text="reserve")).to_contain_text("undone by shelf.release if it fails")
    children = rows.filter(has_text="label.print").or_(rows.filter(has_text="children")).first
    expect(children).to_contain_text("5 of 5 ended")
    expect(rows.filter(has_text="approval").locator("rect.open")).to_have_count(1)
    graph = page.locator(".graph")
    expect(graph.get_by_text("4 completed, 1 failed")).to_be_visible()
    expect(graph.get_by_role("link")).to_have_count(0)
    graph.get_by_role("button", name="Show them").click()
    expect(graph.get_by_role("link", name="label.print")).to_have_count(5)
    take_picture(page, "workflow-desktop-light")
    assert violations(page) == []
    graph.get_by_role("link", name="label.print").first.click()
    expect(page.get_by_role("heading", name="label.print")).to_be_visible()


def test_a_question_is_answered_with_fields_of_its_type(page: Page, site: Site, asking: str) -> None:
    page.goto(f"{site.url}/")
    finding = page.locator(".findings li").filter(has_text="1 question of workflows waits for an answer")
    finding.get_by_role("link", name="Answer").click()
    question = page.get_by_role("form", name="Ship order 42 from shelf 42?")
    expect(question.get_by_role("link", name="parcel.ship")).to_be_visible()
    question.get_by_role("radio", name="Yes").check()
    question.get_by_label("parcels").fill("2")
    question.get_by_label("carrier").select_option("courier")
    take_picture(page, "questions-desktop-light")
    assert look_at(page, "questions") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    question.get_by_role("button", name="Answer").click()
    expect(page.get_by_text("parcel.ship has its answer.")).to_be_visible()
    expect(page.get_by_text("No open questions.")).to_be_visible()
    done = site.queue.wait(asking, timeout=180)
    assert done.result == {"value": "courier: 2"}
    go(page, f"/tasks/{asking}")
    expect(page.get_by_role("img", name=re.compile("^Timeline: ran its steps and waited"))).to_be_visible()


def test_an_objective_is_set_measured_and_taken_back(page: Page, site: Site, done: list[str]) -> None:
    # The mark of a change may lie over the cell that is clicked.
    page.route("**/api/changes?*", lambda route: route.fulfill(json={"changes": []}))
    page.goto(f"{site.url}/latency?type=email.send&range=1h&within=0.00001&target=99")
    page.get_by_role("button", name="Set as objective of email.send").click()
    row = page.get_by_role("region", name="Objectives").get_by_role("row").filter(has_text="email.send")
    expect(row).to_contain_text("99 % start within <1 ms")
    expect(page).to_have_url(f"{site.url}/latency?type=email.send&range=1h")
    page.get_by_label("Compare with a week before").check()
    before = page.locator(".panel").filter(has_text="Queue wait, a week before")
    expect(before).to_contain_text("No task finished in this time.")
    assert look_at(page, "objectives") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("button", name="Remove objective").click()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Undo").last.click()
    expect(row).to_have_count(1)
    page.get_by_role("button", name="Remove objective").click()
    expect(row).to_have_count(0)
    found = page.request.get(f"{site.url}/api/metrics/latency?type=email.send").json()
    found["bounds"] = [0.001, 0.002, 0.004]
    for point in found["points"]:
        point["counts"] = [0, 7 * (point is found["points"][-1]), 0]
    page.route("**/api/metrics/latency?*", lambda route: route.fulfill(json=found))
    middle = datetime.fromisoformat(found["points"][-1]["at"]) + timedelta(seconds=found["stepSeconds"] / 2)
    release = {"at": middle.isoformat(), "kind": "release", "text": "release 1.1 started"}
    page.route("**/api/changes?*", lambda route: route.fulfill(json={"changes": [release]}))
    page.reload()
    cell = page.locator(".heat").first.locator("rect:not(.heat-mark)")
    expect(cell.locator("title")).to_have_text(re.compile(r" UTC: 7 waited 1 ms to 2 ms\n.*: release 1.1 started$"))
    cell.click()  # in the middle, where the line of the release is
    expect(page).to_have_url(re.compile(r"/tasks\?endedAfter=.*&search=wait%3A0.001..0.002s&type=email.send$"))


def test_an_error_has_a_page_and_is_muted_and_resolved(page: Page, site: Site, done: list[str]) -> None:
    page.goto(f"{site.url}/errors")
    card = page.locator("li.group").filter(has_text="payment.charge")
    expect(card.locator(".badge")).to_have_text("New")
    card.get_by_role("button", name="Mute").click()
    expect(card).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(card).to_have_count(1)
    card.get_by_role("button", name="Resolve").click()
    page.get_by_role("button", name="Resolved 1").click()
    expect(card.locator(".badge")).to_have_text("Resolved")

    again = site.queue.enqueue("payment.charge", {"order": 77}).id
    site.queue.wait(again, timeout=180)
    page.get_by_role("button", name=re.compile("^Open")).click()
    expect(card.locator(".badge")).to_have_text("Came again")
    card.get_by_role("link", name=re.compile("Abort")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Came again")
    expect(page.get_by_label("Traceback")).to_contain_text("card declined")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    assert look_at(page, "error") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("button", name="Mute").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Muted")
    site.queue.delete(again)


def test_a_report_says_what_was_done_and_prints(page: Page, site: Site, done: list[str]) -> None:
    eventually(lambda: http_types(site).get("email.send", 0) >= 6)
    page.goto(f"{site.url}/report?seconds=3600")
    row = page.get_by_role("region", name="By type").get_by_role("row").filter(has_text="email.send")
    expect(row.locator(".number").first).to_have_text("6")
    failing = page.get_by_role("region", name="By type").get_by_role("row").filter(has_text="payment.charge")
    expect(failing).to_contain_text("100.0 %")
    page.get_by_label("From").fill("2020-01-01T00:00")
    page.get_by_label("To", exact=True).fill("2020-01-02T00:00")
    expect(page).to_have_url(re.compile("from=2020-01-01T00%3A00&to=2020-01-02"))
    expect(page.get_by_text("No task finished in this time.")).to_be_visible()
    work = page.request.get(f"{site.url}/api/metrics/types?seconds=3600").json()
    work["types"] = [work["types"][0] | {"type": f"kind.{n}"} for n in range(60)]
    page.route("**/api/metrics/types?*", lambda route: route.fulfill(json=work))
    go(page, "/report?seconds=3600")
    kinds = page.get_by_role("region", name="By type").locator("tbody tr:visible")
    expect(page.get_by_role("button", name="Show 10 more")).to_be_visible()
    expect(kinds).to_have_count(50)
    page.emulate_media(media="print")
    expect(kinds, "on paper all are there").to_have_count(60)
    page.emulate_media(media="null")
    page.unroute("**/api/metrics/types?*")
    go(page, "/report?seconds=86400")
    expect(row).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Pages of the dashboard")).to_be_hidden()
    expect(page.get_by_role("button", name="Print")).to_be_hidden()
    expect(row).to_be_visible()


def test_what_was_changed_is_marked_in_every_picture_of_time(page: Page, site: Site, done: list[str]) -> None:
    eventually(lambda: http_types(site).get("email.send", 0) >= 6)
    site.queue.set_rate_limit(900, "email.send")  # by a program, not here
    words = "set the rate limit of email.send to 900/s"
    page.goto(f"{site.url}/report?seconds=3600")
    for path, picture in (("/report", ".report-bars"), ("/latency?range=1h", ".heat"), ("/lanes", ".lane-box")):
        go(page, path)
        expect(page.locator(f"{picture} .change title").filter(has_text=words), path).to_have_count(1)

    go(page, "/?range=1h")
    expect(page.locator(".changes")).to_contain_text(f"{words} · ")
    expect(page.locator(".chart").filter(has_text="Queue wait").locator(".u-over")).to_be_visible()
    expect(page.get_by_text("No task finished in this time.")).to_have_count(0)  # six did, a moment ago
    go(page, "/")
    plot = page.locator(".chart").filter(has_text="Queue depth").locator(".u-over")
    expect(plot).to_be_visible()

    def said() -> bool:
        """Whether the words come under the pointer somewhere near the present."""
        box = plot.bounding_box()
        assert box is not None
        for left in range(int(box["width"]) - 1, int(box["width"]) - 80, -6):
            page.mouse.move(box["x"] + left, box["y"] + 40)
            if words in "".join(page.locator(".change-words").all_inner_texts()):
                return True
        return False

    eventually(said)
    site.queue.set_rate_limit(0, "email.send")


def http_types(site: Site) -> dict[str, int]:
    """How many tasks of each type the workers have counted as completed."""
    found = httpx.get(f"{site.url}/api/metrics/types?seconds=3600", timeout=180).json()["types"]
    return {each["type"]: each["ended"]["completed"] for each in found}


def test_a_view_is_kept_in_the_browser_and_found_again(page: Page, site: Site, done: list[str]) -> None:
    page.goto(f"{site.url}/tasks?type=payment.charge&status=failed")
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name").fill("Declined cards")
    page.get_by_role("button", name="Save", exact=True).click()
    go(page, "/tasks")
    page.reload()
    view = page.get_by_role("group", name="Saved views").get_by_role("button", name="Declined cards", exact=True)
    view.click()
    expect(page).to_have_url(f"{site.url}/tasks?type=payment.charge&status=failed")
    expect(page.locator("tr[data-row]")).to_have_count(2)
    assert violations(page) == []
    page.get_by_role("button", name="Remove the view Declined cards").click()
    expect(view).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(view).to_have_count(1)


def test_a_task_leads_to_its_worker_error_group_parent_and_older_tracebacks(
    page: Page, site: Site, done: list[str]
) -> None:
    failing = site.queue.enqueue("page.crawl", {"url": "x"}, max_attempts=5).id
    eventually(lambda: site.queue.get(failing).attempts == 1)  # type: ignore[union-attr]
    eventually(lambda: site.queue.get(failing).next_retry_at is not None)  # type: ignore[union-attr]
    site.queue.retry(failing)
    eventually(lambda: len(site.queue.get(failing).history) == 2)  # type: ignore[union-attr]
    page.goto(f"{site.url}/tasks/{failing}")
    page.get_by_role("button", name="Traceback of attempt 1").click()
    expect(page.locator(".attempt-trace .source.here")).to_contain_text("raise ConnectionResetError")
    site.queue.cancel(failing)
    page.goto(f"{site.url}/tasks/{done[-1]}")
    page.get_by_role("link", name="Abort").click()
    expect(page.get_by_role("heading", name="Abort")).to_be_visible()
    page.go_back()
    page.locator(".attempts-table a").first.click()
    expect(page.get_by_role("row", name="payment.charge")).to_have_count(2)


def test_a_name_wider_than_the_screen_fits_where_what_ran_is_shown(page: Page, site: Site) -> None:
    site.queue.wait(site.queue.enqueue(FAILING), timeout=180)
    eventually(lambda: FAILING in http_types(site))
    page.goto(f"{site.url}/errors")
    for path in ("/errors", "/report?seconds=3600", "/lanes"):
        go(page, path)
        expect(page.locator("main").get_by_text(FAILING).first).to_be_attached()
        expect(page.locator(".bone")).to_have_count(0)
        assert too_wide(page) == [], path
