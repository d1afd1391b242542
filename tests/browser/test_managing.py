"""What a person does to the whole queue, its types, schedules and errors, and what the queue says of it afterwards."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from playwright.sync_api import Page, expect

from tasklib import TaskQueue
from tasklib.storage.operations.access.audit import AuditEntry, write_audit
from tests.browser.acting import cancelled, confirm, go
from tests.browser.site import Site

WORKS = False
"""Without a worker what is not changed here does not change."""


def test_pause_and_resume_say_who_and_why(page: Page, site: Site, queue: TaskQueue) -> None:
    page.goto(f"{site.url}/tasks")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_label("Why").fill("the bank is down")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Everything is paused by anonymous")).to_be_visible()
    expect(page.get_by_text("the bank is down")).to_be_visible()
    assert queue.is_paused()
    page.get_by_role("button", name="Resume").first.click()
    expect(page.get_by_text("Everything is paused by")).to_have_count(0)
    assert not queue.is_paused()
    page.get_by_role("button", name="Undo").last.click()
    expect(page.get_by_text("Everything is paused by anonymous")).to_be_visible()
    queue.resume()


def test_limits_over_all_and_of_a_type_and_budgets(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.enqueue("email.send", {})
    page.goto(f"{site.url}/tasks")
    page.get_by_role("button", name="Limits").click()
    page.get_by_label("Max. starts per second").fill("7.5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{site.url}/types")
    page.get_by_role("button", name="Limits of email.send").click()
    page.get_by_label("Max. running", exact=True).fill("3")
    page.get_by_label("Max. running per concurrency key").fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("3 at once")).to_be_visible()
    expect(page.get_by_text("2 of a key")).to_be_visible()
    assert [(each.key, each.name, each.max_running) for each in queue.key_limits()] == [(None, "email.send", 2)]
    page.get_by_role("button", name="Limits of email.send").click()
    page.get_by_label("Max. running per concurrency key").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("2 of a key")).to_have_count(0)
    assert queue.key_limits() == []
    assert {(each.name, each.rate, each.max_running) for each in queue.limits()} == {
        (None, 7.5, None),
        ("email.send", None, 3),
    }
    queue.set_rate_limit(0)
    queue.set_concurrency_limit(0, "email.send")

    page.goto(f"{site.url}/settings")
    budget = page.get_by_role("region", name="Budgets").get_by_role("row", name="llm")
    page.get_by_role("button", name="New budget").click()
    page.get_by_label("Name").fill("llm")
    page.get_by_label("Tokens that come").fill("90000")
    page.get_by_role("button", name="Save").click()
    expect(budget).to_contain_text("90,000 per minute90,00090,000")
    page.get_by_role("button", name="Edit llm").click()
    page.get_by_role("dialog").get_by_role("combobox").select_option("second")
    page.get_by_label("Tokens that come").fill("0.1")
    page.get_by_role("button", name="Save").click()
    expect(budget).to_contain_text("6 per minute90,000")
    page.get_by_role("button", name="Remove llm").click()
    confirm(page, "Remove 1 budget")
    expect(page.get_by_text("No budgets.")).to_be_visible()
    assert queue.budgets() == []
    expect(page.get_by_text("anonymous with the role admin")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)


def test_types_are_found_among_many_and_one_is_paused_and_resumed(page: Page, site: Site, queue: TaskQueue) -> None:
    for n in range(51):
        queue.enqueue(f"kind.{n}", {})
    queue.enqueue("email.send", {})
    queue.cancel(queue.enqueue("a.idle", {}))
    page.goto(f"{site.url}/types")
    rows, idle = page.locator("tr.kind"), page.get_by_role("row", name="a.idle")
    expect(rows).to_have_count(50)
    expect(rows.nth(3), "kind.2 stands before kind.10").to_contain_text("kind.2")
    page.get_by_role("button", name="Show 3 more").click()
    expect(rows.last, "what needs attention stands first").to_contain_text("a.idle")
    rows.last.hover()
    queue.enqueue("a.idle", {})
    expect(idle.locator("[data-label=Workers]")).to_have_text("none")
    expect(rows.last, "the order stands still under the pointer").to_contain_text("a.idle")
    page.mouse.move(0, 0)
    expect(rows.first).to_contain_text("a.idle")
    page.get_by_role("searchbox").fill("SEND")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Pause email.send").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status").filter(has_text="email.send is paused by anonymous")).to_be_visible()
    assert queue.is_paused("email.send")
    page.get_by_role("region", name="Types").get_by_role("button", name="Resume email.send").click()
    expect(page.get_by_role("button", name="Pause email.send")).to_be_visible()
    assert not queue.is_paused("email.send")
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{site.url}/types")
    expect(rows, "fewer where each takes lines").to_have_count(20)


def test_a_schedule_is_made_changed_run_paused_and_deleted(page: Page, site: Site, queue: TaskQueue) -> None:
    page.goto(f"{site.url}/schedules")
    expect(page.get_by_text("No schedules yet.")).to_be_visible()
    page.get_by_role("button", name="New schedule").click()
    page.get_by_label("Name").fill("report")
    page.get_by_label("Type of task").fill("report.make")
    page.get_by_role("textbox", name="Cron").fill("61 * * * *")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("61 * * * *")
    page.get_by_role("textbox", name="Cron").fill("0 9 * * mon")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("At 09:00 on Monday, UTC. Next: ")
    page.get_by_text("Options of each task").click()
    page.get_by_label("Attempts at most").fill("2")
    page.get_by_label("Tags (JSON)").fill('{"team": "media"}')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="0 9 * * mon At 09:00 on Monday, UTC")).to_be_visible()

    page.get_by_role("button", name="Edit report").click()
    page.get_by_label("Repeats").select_option("every")
    page.get_by_role("spinbutton", name="Seconds", exact=True).fill("90")
    page.get_by_label("Spread over, seconds").fill("5")
    page.get_by_label("Ends").fill("2040-01-31T10:00")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("every 1 min 30 s")).to_be_visible()
    runs = page.locator("[data-label='Next runs'] .hint")
    expect(runs).to_have_text(re.compile(r"^then .*\d\d:\d\d(:\d\d)? and .*\d\d:\d\d(:\d\d)? UTC$"))
    page.get_by_role("button", name="Edit report").click()
    page.get_by_label("Starts").fill("2020-01-31T10:00")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    (plan,) = (each.plan for each in queue.schedules())
    assert (plan.every, plan.jitter) == (90, 5)
    assert plan.options == {"max_retries": 1, "tags": {"team": "media"}}
    # As typed, in the time of this machine, also after another change.
    moments = [each and f"{each.astimezone():%Y-%m-%d %H:%M}" for each in (plan.starts_at, plan.ends_at)]
    assert moments == ["2020-01-31 10:00", "2040-01-31 10:00"]
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("report was started.")).to_be_visible()
    assert queue.count(name="report.make") == 1
    page.get_by_role("button", name="Pause report").click()
    page.get_by_role("button", name="Resume report").click()
    expect(page.get_by_role("button", name="Pause report")).to_be_visible()
    listed = page.request.get(f"{site.url}/api/schedules").json()
    listed["schedules"][0]["nextRuns"][0] = "2020-01-31T10:00:00Z"
    page.route("**/api/schedules", lambda route: route.fulfill(json=listed))
    go(page, "/types")
    go(page, "/schedules")
    expect(page.locator("[data-label='Next runs']"), "nothing starts it").to_contain_text("was due ")
    page.unroute("**/api/schedules")
    page.get_by_role("button", name="Delete report").click()
    confirm(page, "Delete 1 schedule")
    expect(page.get_by_text("No schedules yet.")).to_be_visible()
    assert queue.schedules() == []


def test_a_group_of_errors_is_counted_then_run_again(page: Page, site: Site, queue: TaskQueue) -> None:
    def charge(payload: dict[str, int]) -> None:
        raise ValueError(f"order {payload['order']} has no card")

    queue.register_handler("charge", charge)
    for order in range(3):
        queue.enqueue("charge", {"order": order}, max_attempts=1)
    queue.process_batch()
    queue.unregister_handler("charge")
    page.goto(f"{site.url}/errors")
    page.get_by_role("link", name="ValueError").click()
    expect(page.get_by_role("heading", name="ValueError")).to_be_visible()
    page.get_by_role("link", name="All 3 tasks").click()
    expect(page.get_by_role("button", name="Remove the error ValueError")).to_be_visible()
    expect(page.locator("tr[data-row]")).to_have_count(3)
    page.go_back()
    page.go_back()
    page.get_by_role("button", name="Run again: ValueError in charge").click()
    expect(page.get_by_role("dialog")).to_contain_text("3 tasks of type charge run again")
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"ValueError: order \d has no card"))
    page.get_by_label("Max. tasks per second").fill("0.1")
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_text("Nothing has failed for good.")).to_be_visible()
    assert (queue.count(state="pending"), queue.count(state="delayed")) == (3, 2)
    paced = page.get_by_role("status").filter(has_text="Retrying 3 tasks of charge at 0.1/s, by anonymous")
    expect(paced).to_contain_text(re.compile("[123] ha(s|ve) come due, the last in"))


def test_old_tasks_are_counted_then_cleaned_up(page: Page, site: Site, queue: TaskQueue) -> None:
    kept, *old = cancelled(queue, number=3)
    page.goto(f"{site.url}/")
    page.get_by_role("checkbox", name="Cancelled").check()
    page.get_by_role("button", name="Clean up").click()
    expect(page.get_by_role("dialog")).to_contain_text("No task is that old")
    expect(page.get_by_role("dialog").get_by_role("button", name="Delete them")).to_be_disabled()
    page.keyboard.press("Escape")

    with closing(sqlite3.connect(site.config.database_url.removeprefix("sqlite:///"))) as connection:
        connection.execute(
            "UPDATE tasks SET completed_at = '2020-01-01 00:00:00.000000' WHERE id IN (?, ?)",
            [str(each) for each in old],
        )
        connection.commit()
    page.get_by_role("combobox", name="Age").select_option("month")
    page.get_by_role("button", name="Clean up").click()
    assert "2 tasks (completed, cancelled)" in confirm(page, "Delete them")
    expect(page.get_by_text("2 tasks removed.")).to_be_visible()
    assert [task.id for task in queue.list()] == [kept]


def test_a_pause_is_lifted_from_the_banner_of_any_page(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.pause("email.send", by="ada", reason="the bank is down")
    page.goto(f"{site.url}/errors")
    banner = page.get_by_role("status").filter(has_text="email.send is paused by ada")
    expect(banner).to_contain_text("the bank is down")
    queue.pause("a.b")
    queue.pause("c.d")
    expect(page.get_by_role("status").filter(has_text="3 pauses"), "many are one").to_contain_text(
        "a.b, c.d, email.send"
    )
    expect(banner).to_have_count(0)
    page.get_by_role("button", name="Show all").click()
    banner.get_by_role("button", name="Resume").click()
    expect(banner).to_have_count(0)
    assert not queue.is_paused("email.send")


def test_types_that_nobody_handles_are_told_on_every_page(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.enqueue("legacy.import", {})
    page.goto(f"{site.url}/settings")
    expect(page.get_by_role("status").filter(has_text="No worker is running, 1 task waiting")).to_be_visible()


def test_the_audit_log_is_read_page_by_page(page: Page, site: Site, queue: TaskQueue) -> None:
    changes = [
        AuditEntry("ada", "operator", verb, None, {"type": f"kind.{turn}"}, None, None)
        for turn in range(26)
        for verb in ("pause", "resume")
    ]
    queue.database.run(lambda: write_audit(changes))
    page.goto(f"{site.url}/settings")
    log = page.get_by_role("region", name="Audit log")
    expect(page.get_by_text("Changes from every front end")).to_be_visible()
    pages = page.get_by_role("navigation", name="Pages of the audit log")
    expect(log.get_by_text("kind.25").first).to_be_visible()
    expect(log.get_by_text("kind.0").first).to_have_count(0)
    pages.get_by_role("button", name="Older").click()
    expect(log.get_by_text("kind.0").first).to_be_visible()
    page.reload()
    expect(log.get_by_text("kind.0").first).to_be_visible()
    pages.get_by_role("button", name="Newest").click()
    expect(log.get_by_text("kind.25").first).to_be_visible()


def test_findings_of_one_kind_are_told_together(page: Page, site: Site, queue: TaskQueue) -> None:
    for n in range(6):
        queue.pause(f"kind.{n}", reason="repairs")
    page.goto(f"{site.url}/")
    findings = page.locator(".findings li")
    together = findings.filter(has_text="5 more pauses: kind.1, kind.2, kind.3 and 2 more")
    expect(findings.filter(has_text="kind.0 is paused")).to_have_count(1)
    expect(findings.filter(has_text="is paused")).to_have_count(1)
    together.get_by_role("button", name="Show 5 more pauses").click()
    expect(together).to_have_count(0)
    page.get_by_role("button", name=re.compile("Show . more")).click()
    expect(findings.filter(has_text="is paused")).to_have_count(6)
