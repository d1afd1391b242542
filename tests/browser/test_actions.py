"""What a person does to tasks on the pages, and what the queue says of it afterwards."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Page, expect

from tasklib import TaskContext, TaskQueue
from tests.browser.acting import cancelled, confirm, go
from tests.browser.site import Site
from tests.fixtures.waiting import eventually

WORKS = False
"""Without a worker what is not changed here does not change."""


def test_the_filter_is_in_the_address_and_comes_back(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, "email.send", 2)
    queue.enqueue("image.resize", {"picture": "cat.jpg"}, tags={"batch": "daily"})
    page.goto(f"{site.url}/tasks")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(3)

    page.get_by_label("Cancelled").check()
    expect(rows).to_have_count(2)
    page.get_by_label("Pending").check()
    expect(rows).to_have_count(3)
    page.get_by_label("Tag, as key=value").fill("batch=daily")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    page.get_by_label("Search by id").fill("CAT")
    expect(page).to_have_url(re.compile(r"status=cancelled&status=pending&tag=batch%3Ddaily&search=CAT"))
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Search by id")).to_have_value("CAT")
    page.go_back()
    expect(rows).to_have_count(3)
    page.get_by_label("Type", exact=True).fill("image.resize")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(3)


def test_pages_go_on_and_back(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.submit_new([queue.new_by_name("email.send", {"n": n}) for n in range(120)])
    page.goto(f"{site.url}/tasks")
    shown = page.get_by_label("Pages", exact=True)
    expect(shown).to_contain_text("1–50 of 120")
    shown.get_by_role("button", name="Older").click()
    expect(shown).to_contain_text("51–100 of 120")
    page.reload()
    shown.get_by_role("button", name="Older").click()
    expect(shown).to_contain_text("101–120 of 120")
    expect(shown.get_by_role("button", name="Older")).to_be_disabled()
    shown.get_by_role("button", name="Newer").click()
    expect(shown).to_contain_text("51–100 of 120")


def test_actions_of_a_row(page: Page, site: Site, queue: TaskQueue) -> None:
    (task_id,) = cancelled(queue)
    page.goto(f"{site.url}/tasks")
    row = page.locator("tr[data-row]")
    row.get_by_role("button", name="Retry").click()
    expect(row.get_by_text("Pending")).to_be_visible()
    page.mouse.move(0, 0)  # While the pointer is in the row, no button turns into another.
    banner = page.get_by_role("status").filter(has_text="No worker is running")
    expect(banner).to_be_visible()
    row.get_by_role("button", name="Cancel").click()
    assert "1 task" in confirm(page, "Cancel 1 task")
    expect(row.get_by_text("Cancelled")).to_be_visible()
    page.mouse.move(0, 0)
    expect(banner).to_have_count(0)
    row.get_by_role("button", name="Delete").click()
    confirm(page, "Delete 1 task")
    expect(page.get_by_text("No tasks yet.")).to_be_visible()
    assert queue.get(task_id) is None


def test_a_question_that_is_not_answered_changes_nothing(page: Page, site: Site, queue: TaskQueue) -> None:
    (task_id,) = cancelled(queue)
    page.goto(f"{site.url}/tasks")
    page.get_by_role("button", name="Delete email.send").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert queue.get(task_id) is not None


def test_what_is_selected_is_counted_then_changed(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, number=3)
    queue.enqueue("email.send", {"n": 3})
    page.goto(f"{site.url}/tasks")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Delete selected").click()
    assert "3 tasks of the 4 selected" in confirm(page, "Delete")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    assert queue.count() == 1


def changes_made(page: Page, site: Site) -> list[str]:
    """What the audit log has, the oldest first."""
    entries = page.request.get(f"{site.url}/api/audit").json()["entries"]
    return [each["action"] for each in reversed(entries)]


def test_all_that_match_are_counted_then_changed(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, "email.send", 60)
    cancelled(queue, "image.resize", 2)
    page.goto(f"{site.url}/tasks?type=email.send")
    page.get_by_role("button", name="Retry all").click()
    expect(page.get_by_role("dialog")).to_contain_text("that takes tasks that are retrying, failed, buried")
    page.keyboard.press("Escape")
    page.get_by_label("Cancelled").check()
    before = changes_made(page, site)
    page.get_by_role("button", name="Retry all").click()
    assert "60 tasks that match the filter" in confirm(page, "Retry")
    eventually(lambda: queue.count(state="pending") == 60)
    assert changes_made(page, site) == [*before, "act_on_matching"], "one change, however many tasks"
    banner = page.get_by_role("status").filter(has_text="No worker is running, 60 tasks waiting")
    page.mouse.move(0, 0)
    expect(banner).to_be_visible()  # It moves what is clicked next, and comes when the list is left.
    page.get_by_label("Cancelled").uncheck()
    page.get_by_role("button", name="Cancel all").click()
    assert "60 tasks" in confirm(page, "Cancel")
    eventually(lambda: queue.count(state="cancelled") == 62)
    page.mouse.move(0, 0)
    expect(banner).to_have_count(0)
    page.get_by_role("button", name="Cancel all").click()
    expect(page.get_by_role("dialog")).to_contain_text("None of them can be cancelled")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_label("Cancelled").check()
    expect(page.get_by_role("toolbar").get_by_role("button")).to_have_text(["Retry all", "Delete all"])


def test_the_keyboard_alone_finds_opens_and_selects(page: Page, site: Site, queue: TaskQueue) -> None:
    newest = cancelled(queue, number=3)[-1]
    page.goto(f"{site.url}/tasks")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    page.keyboard.press("/")
    expect(page.get_by_label("Search by id")).to_be_focused()
    page.keyboard.press("Escape")
    for key in ("j", "j", "k", "x"):
        page.keyboard.press(key)
    expect(page.locator("tr[data-row]").first.get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/tasks/{newest}")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()


def test_a_new_task_and_the_same_again_with_edits(page: Page, site: Site, queue: TaskQueue) -> None:
    page.goto(f"{site.url}/tasks")
    page.get_by_role("button", name="New task").click()
    page.get_by_label("Type", exact=True).last.fill("email.send")
    page.get_by_label("Payload (JSON)").fill('{"to": "ada"')
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Payload:")
    page.get_by_label("Payload (JSON)").fill('{"to": "ada"}')
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", name="email.send")).to_be_visible()
    first = queue.get(page.url.rpartition("/")[2])
    assert (first.kwargs, first.priority) == ({"to": "ada"}, 7)

    page.get_by_role("button", name="Duplicate & edit").click()
    edited = json.dumps({"to": "grace"})
    page.get_by_label("Payload (JSON)").fill(edited)
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).not_to_have_url(f"{site.url}/tasks/{first.id}")
    second = queue.get(page.url.rpartition("/")[2])
    assert (second.kwargs, second.priority, second.max_retries) == ({"to": "grace"}, 7, first.max_retries)


def test_a_secret_left_untouched_keeps_its_stored_value(page: Page, site: Site, queue: TaskQueue) -> None:
    task_id = queue.enqueue("email.relay", {"to": "ada", "api_key": "s3cret", "login": {"password": "hunter2"}}).id
    page.goto(f"{site.url}/tasks/{task_id}")
    page.get_by_role("button", name="Duplicate & edit").click()
    field = page.get_by_label("Payload (JSON)")
    shown = json.loads(field.input_value())
    assert shown == {"to": "ada", "api_key": "**********", "login": {"password": "**********"}}
    field.fill(json.dumps(shown | {"to": "grace", "login": {"password": "changed"}}))
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).not_to_have_url(f"{site.url}/tasks/{task_id}")
    again = queue.get(page.url.rpartition("/")[2])
    assert again.kwargs == {"to": "grace", "api_key": "s3cret", "login": {"password": "changed"}}


def test_priorities_of_one_of_some_and_of_all_that_match(page: Page, site: Site, queue: TaskQueue) -> None:
    ended, *waiting = [*cancelled(queue), *(queue.enqueue("email.send", {"n": n}).id for n in range(3))]

    def give(priority: int) -> str:
        page.get_by_label("Priority (higher runs first)").fill(str(priority))
        return confirm(page, "Prioritize")

    page.goto(f"{site.url}/tasks?type=email.send")
    rows = page.locator("tr[data-row]")
    rows.first.get_by_role("button", name="Prioritize").click()
    assert "runs before tasks with a lower priority" in give(9)
    expect(rows.first.get_by_title("Priority")).to_have_text("P9")
    rows.nth(1).get_by_role("checkbox").check()
    rows.last.get_by_role("checkbox").check()
    page.get_by_role("button", name="Prioritize selected").click()
    assert "1 task of the 2 selected gets this priority" in give(5)
    expect(rows.nth(1).get_by_title("Priority")).to_have_text("P5")
    assert [queue.get(each).priority for each in (*waiting, ended)] == [0, 5, 9, 0]
    page.get_by_role("button", name="Prioritize all").click()
    assert "3 tasks that match the filter get this priority" in give(-5)
    expect(rows.get_by_title("Priority")).to_have_text(["P-5", "P-5", "P-5"])
    assert [queue.get(each).priority for each in (*waiting, ended)] == [-5, -5, -5, 0]


def test_actions_of_a_task(page: Page, site: Site, queue: TaskQueue) -> None:
    task_id = queue.enqueue("email.send", {"to": "ada"}).id
    page.goto(f"{site.url}/tasks/{task_id}")
    expect(page.get_by_text("Why isn’t it running?")).to_be_visible()
    expect(page.get_by_text("no live worker knows")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    confirm(page, "Cancel 1 task")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
    assert queue.get(task_id).state == "pending"
    queue.cancel(task_id)
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete 1 task")
    expect(page).to_have_url(f"{site.url}/tasks")
    assert queue.get(task_id) is None
    page.goto(f"{site.url}/")  # what was there must not be asked for again


def test_selected_tasks_are_retried_cancelled_and_let_go(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, number=3)
    page.goto(f"{site.url}/tasks")
    boxes = page.locator("tr[data-row]").get_by_role("checkbox")
    for place in (0, 1):
        boxes.nth(place).check()
    page.get_by_role("button", name="Retry selected").click()
    assert "2 tasks of the 2 selected" in confirm(page, "Retry")
    eventually(lambda: queue.count(state="pending") == 2)
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Cancel selected").click()
    assert "2 tasks of the 3 selected" in confirm(page, "Cancel")
    eventually(lambda: queue.count(state="cancelled") == 3)
    boxes.first.check()
    page.get_by_role("button", name="Select none").click()
    expect(page.get_by_role("toolbar")).to_have_count(0)
    page.goto(f"{site.url}/tasks?type=email.send&status=cancelled")
    page.get_by_role("button", name="Delete all").click()
    assert "3 tasks that match the filter" in confirm(page, "Delete")
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    expect(page.get_by_role("button", name="Delete all"), "there is nothing to delete").to_have_count(0)
    assert queue.count() == 0


def test_tasks_are_found_by_when_they_were_made(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue)
    page.goto(f"{site.url}/tasks?tag=batch%3Ddaily")
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    page.get_by_role("button", name="Remove the tag batch=daily").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.get_by_role("combobox", name=re.compile("^Created")).select_option("15m")
    expect(page).to_have_url(re.compile("since=15m"))
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.get_by_role("combobox", name=re.compile("^Created")).select_option("between")
    page.get_by_label("Created before").fill("2020-01-01T00:00")
    expect(page.get_by_text("No task matches this filter.")).to_be_visible()
    page.get_by_label("Created before").fill("")
    page.get_by_label("Created after").fill("2020-01-01T00:00")
    expect(page).to_have_url(re.compile("after=2020"))
    expect(page.locator("tr[data-row]")).to_have_count(1)


def test_what_is_shown_of_a_task_can_be_copied(page: Page, site: Site, queue: TaskQueue) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    done, failed = (
        queue.enqueue(name, {"order": 7}, tags={"batch": "daily"}, max_attempts=1) for name in ("ship", "lose")
    )

    def ship(payload: dict[str, int], ctx: TaskContext) -> dict[str, int]:
        ctx.log.info("shipping")
        return payload

    queue.register_handler("ship", ship)
    queue.register_handler("lose", lambda payload: 1 // 0)
    queue.process_batch()
    queue.unregister_handler("ship")
    queue.unregister_handler("lose")

    def copied(label: str) -> str:
        page.get_by_role("button", name=f"Copy the {label}").click()
        expect(page.get_by_text("Copied.")).to_be_visible()
        page.get_by_role("button", name="Dismiss").click()
        return str(page.evaluate("navigator.clipboard.readText()"))

    page.goto(f"{site.url}/tasks/{done.id}")
    assert copied("id") == str(done.id)
    assert [json.loads(copied(what)) for what in ("payload", "result", "tags")] == [
        {"order": 7},
        {"order": 7},
        {"batch": "daily"},
    ]
    assert copied("log") == "shipping"
    go(page, f"/tasks/{failed.id}")
    assert copied("error") == queue.get(failed.id).error


def test_a_completed_task_runs_again_only_when_asked_twice(page: Page, site: Site, queue: TaskQueue) -> None:
    task_id = queue.enqueue("ship", {}).id
    queue.register_handler("ship", lambda payload: None)
    queue.process_batch()
    queue.unregister_handler("ship")
    page.goto(f"{site.url}/tasks")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    page.goto(f"{site.url}/tasks/{task_id}")
    page.get_by_role("button", name="Run again").click()
    assert "has completed. It will run again" in confirm(page, "Retry 1 task")
    expect(page.get_by_role("heading", name="ship").get_by_text("Pending")).to_be_visible()
    assert queue.get(task_id).state == "pending"


def test_large_values_are_folded_and_opened(page: Page, site: Site, queue: TaskQueue) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    payload = {"long": "x" * 5000, "many": list(range(150)), "deep": {"a": {"b": {"c": 1, "d": 2, "e": 3, "f": 4}}}}
    task_id = queue.enqueue("email.send", payload).id
    page.goto(f"{site.url}/tasks/{task_id}")
    shown = page.get_by_role("group", name="payload")
    shown.get_by_role("button", name="show all 5,000 characters").click()
    expect(shown).to_contain_text("x" * 5000)
    shown.get_by_role("button", name="show 50 more").click()
    expect(shown).to_contain_text("149")
    expect(shown).not_to_contain_text('"f"')
    shown.get_by_role("button", name="Fold", expanded=False).click()
    expect(shown).to_contain_text('"f"')
    shown.get_by_role("button", name="Fold", expanded=True).first.click()
    expect(shown).not_to_contain_text("149")
    page.get_by_label("Search in the payload").fill("E")
    expect(page.get_by_text("2 found"), "in the names deep and e").to_be_visible()
    expect(shown.locator("mark")).to_have_text(['"deep"', '"e"'])
    page.get_by_role("button", name="Copy the path args.deep.a.b.e").click()
    assert page.evaluate("navigator.clipboard.readText()") == "args.deep.a.b.e"
    page.get_by_label("Search in the payload").fill("")
    expect(shown).not_to_contain_text('"f"')
    page.get_by_role("button", name="Expand all of the payload").click()
    expect(shown).to_contain_text('"f"')
