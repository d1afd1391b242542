"""Lists stand still under the hand, names of any length and shape fit, and what is said of a task is true."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from playwright.sync_api import Page, Route, expect

from tasklib import TaskContext, TaskQueue
from tests.browser.acting import cancelled, confirm, go
from tests.browser.site import Site
from tests.fixtures.waiting import eventually

WORKS = False
LONG = "orders." + "very_long_name" * 11 + "x" * 12
TURNED = "a\u202eb"
"""Text that a browser would show from right to left."""


def test_a_list_stands_still_while_the_pointer_is_in_it(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, number=4)
    page.goto(f"{site.url}/tasks")
    rows, news = page.locator("tr[data-row]"), page.get_by_role("button", name=re.compile("new ↑"))
    expect(rows).to_have_count(4)
    shown = [row.get_attribute("title") for row in rows.locator("code.id").all()]
    rows.first.get_by_role("button", name="Retry").hover()
    cancelled(queue, number=3)
    expect(news).to_have_text("3 new ↑")
    assert [row.get_attribute("title") for row in rows.locator("code.id").all()] == shown

    banner = page.get_by_role("status").filter(has_text="No worker is running")
    with page.expect_response(lambda answer: "/api/findings" in answer.url and "no_workers" in answer.text()):
        rows.first.get_by_role("button", name="Retry").click()
    expect(rows.first.get_by_text("Pending")).to_be_visible()
    expect(rows.first.get_by_role("button", name="Cancel"), "nothing else comes under the pointer").to_have_count(0)
    expect(banner, "and nothing above it moves it").to_have_count(0)
    queue.delete(shown[1])
    expect(page.get_by_text("was deleted.")).to_be_visible()
    news.click()
    expect(rows).to_have_count(6)
    expect(news).to_have_count(0)

    page.mouse.move(0, 0)
    expect(banner).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.getAttribute('href')")
    cancelled(queue, number=2)
    expect(news).to_have_text("2 new ↑")
    assert page.evaluate("document.activeElement.getAttribute('href')") == focused
    page.keyboard.press("x")
    page.mouse.click(2, 300)
    expect(news, "while some are selected too").to_have_text("2 new ↑")


def test_a_picture_stays_where_it_is_while_the_pointer_is_in_it(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.register_handler("ping", lambda payload: None)
    queue.enqueue("ping", {})
    queue.process_batch()
    queue.unregister_handler("ping")
    page.goto(f"{site.url}/lanes")
    page.get_by_role("img", name="1 lane with 1 attempt").hover()
    banner = page.get_by_role("status").filter(has_text="No worker is running")
    with page.expect_response(lambda answer: "/api/findings" in answer.url and "no_workers" in answer.text()) as found:
        queue.enqueue("ping", {})
    found.value.finished()
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    expect(banner).to_have_count(0)
    page.mouse.move(0, 0)
    expect(banner).to_be_visible()


def test_back_leads_to_where_one_was(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, number=40)
    page.goto(f"{site.url}/tasks")
    expect(page.locator("tr[data-row]")).to_have_count(40)
    page.locator("tr[data-row]").nth(30).scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    assert before > 200
    page.locator("tr[data-row] .row-link").nth(30).click()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    page.go_back()
    expect(page.locator("tr[data-row]")).to_have_count(40)
    eventually(lambda: abs(page.evaluate("scrollY") - before) < 2)


def test_a_name_of_any_length_and_direction_fits(page: Page, site: Site, queue: TaskQueue) -> None:
    task_id = queue.enqueue(LONG, {"note": TURNED}, tags={"note": TURNED}).id
    queue.add_schedule(LONG, task=LONG, every=3600)
    page.goto(f"{site.url}/tasks")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("/types", "/schedules", "/tasks", f"/tasks?type={LONG}", f"/tasks/{task_id}", "/"):
            go(page, path)
            expect(page.locator("main").get_by_text(LONG).first).to_be_visible()
            expect(page.locator(".bone")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            widest = page.evaluate(
                "Math.max(0, ...[...document.querySelectorAll('.scroller')].map((e) => e.scrollWidth - e.clientWidth))"
            )
            assert widest <= 0, (path, width, "buttons are out of sight")
    for path in ("/tasks", f"/tasks/{task_id}"):
        go(page, path)
        expect(page.get_by_text("a⟨U+202E⟩b").first).to_be_visible()
        assert "\u202e" not in page.inner_text("main")


def test_a_task_is_found_by_its_id_whole_or_short(page: Page, site: Site, queue: TaskQueue) -> None:
    _, wanted, _ = cancelled(queue, number=3)
    page.goto(f"{site.url}/tasks")
    for text in (str(wanted), str(wanted)[-8:]):
        page.get_by_label("Search by id").fill(text)
        expect(page.locator("tr[data-row]")).to_have_count(1)
        expect(page.locator("tr[data-row] code.id")).to_have_attribute("title", str(wanted))
    page.get_by_label("Search by id").fill("ffffffffffff")
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    expect(page.get_by_role("toolbar"), "nothing is offered for nothing").to_have_count(0)


def test_attempts_before_and_after_a_retry_by_hand(page: Page, site: Site, queue: TaskQueue) -> None:
    task_id = queue.enqueue("lose", {}, max_attempts=1).id

    def lose(payload: object, ctx: TaskContext) -> None:
        for n in range(200):
            ctx.log.info("line %d", n)
        raise ValueError("no")

    queue.register_handler("lose", lose)
    queue.process_batch()
    queue.retry(task_id)
    queue.process_batch()
    queue.unregister_handler("lose")
    page.goto(f"{site.url}/tasks/{task_id}")
    expect(page.locator(".attempts-table .which")).to_have_text([re.compile("2.*retried by hand"), "1"])
    expect(
        page.get_by_role("img", name=re.compile("attempt 1 failed .*retried by hand.*attempt 2 failed"))
    ).to_be_visible()
    hidden = page.locator(".log").evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight")
    assert hidden < 8, "the log is open at its newest line"

    page.goto(f"{site.url}/tasks?type=lose&status=failed")
    page.get_by_role("button", name="Retry all").click()
    confirm(page, "Retry")
    eventually(lambda: queue.get(task_id).state == "pending")
    entries: list[Any] = httpx.get(f"{site.url}/api/audit", timeout=180).json()["entries"]
    assert [each["action"] for each in entries].count("act_on_matching") == 1


def test_a_step_that_is_not_over_is_not_drawn_as_a_collapse(page: Page, site: Site, queue: TaskQueue) -> None:
    step, now = 900, time.time()
    starts = [now // step * step - back * step for back in range(5, -1, -1)]
    none = {"p50": None, "p95": None, "p99": None}

    def point(at: float) -> dict[str, Any]:
        lasted = min(step, now - at)
        known = at >= starts[2]
        ended = {
            "completed": round(64 * lasted) if known else 0,
            "failed": 0,
            "retried": 0,
            "cancelled": 0,
            "buried": 0,
        }
        depth = {"due": 9000, "delayed": 0, "retrying": 0, "running": 8} if known else None
        moment = datetime.fromtimestamp(at, UTC).isoformat()
        return {"at": moment, "ended": ended, "wait": none, "run": none, "depth": depth}

    def answer(route: Route) -> None:
        route.fulfill(json={"stepSeconds": step, "type": None, "points": [point(at) for at in starts]})

    page.route("**/api/metrics/series?*", answer)
    queue.enqueue("nobody.knows")
    page.goto(f"{site.url}/?range=24h")
    expect(page.get_by_role("img", name="Throughput: completed now 64/s, at most 64/s")).to_be_visible()
    depth = page.get_by_role("img", name=re.compile("Queue depth: ready now 1, at most 9,000"))
    expect(depth, "what waits now is counted now").to_be_visible()
    expect(
        page.get_by_text("Cannot run now1 task"), "what nobody handles is no backlog that can be cleared"
    ).to_be_visible()
    expect(page.get_by_title("Compared with the same hour of yesterday").first).to_have_text("unchanged")
    page.get_by_label("Log scale").check()
    plot = page.locator(".u-over").first
    plot.hover(position={"x": 200, "y": 50})
    expect(page.locator(".chart-time").first).to_contain_text(re.compile(r"\d\d:\d\d:\d\d UTC"))
    plot.hover(position={"x": 50, "y": 50})
    page.mouse.down()
    plot.hover(position={"x": 150, "y": 50})
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"/tasks\?after=.*&before="))


def test_a_chart_of_one_value_shows_minutes_and_not_years(page: Page, site: Site, queue: TaskQueue) -> None:
    none = {"p50": None, "p95": None, "p99": None}

    def point(minutes_ago: int, completed: int) -> dict[str, Any]:
        at = datetime.fromtimestamp((time.time() // 60 - minutes_ago) * 60, UTC).isoformat()
        ended = {"completed": completed, "failed": 0, "retried": 0, "cancelled": 0, "buried": 0}
        return {"at": at, "ended": ended, "wait": none, "run": none, "depth": None}

    # What ended in this minute is not all counted yet.
    answer = {"stepSeconds": 60, "type": None, "points": [point(2, 60), point(0, 3)]}
    page.route("**/api/metrics/series?*", lambda route: route.fulfill(json=answer))
    page.goto(f"{site.url}/?range=1h")
    expect(page.get_by_role("img", name="Throughput: completed now 1/s, at most 1/s")).to_be_visible()
    plot = page.locator(".u-over").first
    plot.hover(position={"x": 50, "y": 50})
    page.mouse.down()
    plot.hover(position={"x": 350, "y": 50})
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"/tasks\?after=.*&before="))
    asked = {name: datetime.fromisoformat(value) for name, (value,) in parse_qs(urlsplit(page.url).query).items()}
    assert asked["before"] - asked["after"] < timedelta(hours=1)


def test_the_palette_leads_anywhere_and_reasons_have_a_button(page: Page, site: Site, queue: TaskQueue) -> None:
    task_id = queue.enqueue("order.ship", {}).id
    queue.pause("order.ship", by="ada")
    page.goto(f"{site.url}/")
    expect(page.locator(".connection.live")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Page, type, id or action").fill("work")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Page, type, id or action").fill(str(task_id)[-8:])
    expect(page.get_by_role("option").first).to_contain_text("Search tasks for")
    page.keyboard.press("Enter")
    page.locator("tr[data-row] .row-link").click()
    expect(page).to_have_title(f"order.ship {str(task_id)[-8:]} · tasklib")
    page.locator(".reasons").get_by_role("button", name="Resume order.ship").click()
    eventually(lambda: queue.pauses() == [])


def test_error_groups_are_searched_and_sorted(page: Page, site: Site, queue: TaskQueue) -> None:
    for name, number in (("alpha", 1), ("beta", 3)):
        for _ in range(number):
            queue.enqueue(name, {}, max_attempts=1)
        queue.register_handler(name, lambda payload: 1 // 0)
        queue.process_batch()
        queue.unregister_handler(name)
    page.goto(f"{site.url}/errors?sort=count")
    groups = page.locator(".group")
    expect(groups.locator(".group-count")).to_have_text(["3", "1"])
    groups.first.hover()
    queue.register_handler("alpha", lambda payload: 1 // 0)
    with page.expect_response(lambda answer: "/api/errors" in answer.url and '"count":5' in answer.text()):
        for _ in range(4):
            queue.enqueue("alpha", {}, max_attempts=1)
        queue.process_batch()
    queue.unregister_handler("alpha")
    expect(groups.locator(".group-count"), "the order stands still under the pointer").to_have_text(["3", "5"])
    page.mouse.move(0, 0)
    expect(groups.locator(".group-count")).to_have_text(["5", "3"])
    page.get_by_label("Search in errors").fill("ALPHA")
    expect(groups).to_have_count(1)
    expect(page).to_have_url(re.compile("search=ALPHA"))


def test_moments_name_their_zone_and_numbers_are_exact_below_a_million(
    page: Page, site: Site, queue: TaskQueue
) -> None:
    task_id = queue.enqueue("email.send", {}).id
    (kind,) = page.request.get(f"{site.url}/api/types").json()["types"]
    many = {"types": [kind | {"completed": 999_999, "failed": 1_234_567}], "total": 1}
    page.route("**/api/types", lambda route: route.fulfill(json=many))
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    page.goto(f"{site.url}/types")
    expect(page.locator("[data-label=Completed]")).to_have_text("999,999")
    expect(page.locator("[data-label=Failed]")).to_have_text("1.2M")
    go(page, f"/tasks/{task_id}")
    moment = page.locator("main time").first
    expect(moment).to_have_attribute("title", re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d:\d\d GMT\+9$"))
    page.get_by_role("button", name="UTC").click()
    expect(moment).to_have_attribute("title", re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d:\d\d UTC$"))
    page.reload()
    expect(moment, "the browser remembers it").to_have_attribute("title", re.compile(" UTC$"))
    session.detach()
