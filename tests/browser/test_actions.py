"""What a person does on the pages, and what the queue says of it afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tasklib import TaskQueue
from tests.browser.site import Site
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Without a worker: what is not changed here does not change."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", works=False) as site:
        yield site


@pytest.fixture
def queue(site: Site) -> TaskQueue:
    """Emptied before each test."""
    for schedule in site.queue.schedules():
        site.queue.remove_schedule(schedule.name)
    for pause in site.queue.pauses():
        site.queue.resume(pause.name)
    for task in site.queue.list(limit=1000):
        if task.completed_at is None:
            site.queue.cancel(task.id)
        site.queue.delete(task.id)
    return site.queue


def cancelled(queue: TaskQueue, name: str = "email.send", number: int = 1) -> list[UUID]:
    """Tasks that can be retried and deleted."""
    ids = [queue.enqueue(name, {"n": n}).id for n in range(number)]
    for task_id in ids:
        queue.cancel(task_id)
    return ids


def confirm(page: Page, verb: str) -> str:
    """Answer the question with yes; what was asked."""
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name=re.compile(f"^{verb}"))
    expect(button).to_be_enabled()
    text = dialog.inner_text()
    button.click()
    expect(dialog).to_have_count(0)
    return text


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
    page.get_by_label("Search in payload").fill("CAT")
    expect(page).to_have_url(re.compile(r"status=cancelled&status=pending&tag=batch%3Ddaily&search=CAT"))
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Search in payload")).to_have_value("CAT")
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
    row.get_by_role("button", name="Cancel").click()
    assert "1 task" in confirm(page, "Cancel 1 task")
    expect(row.get_by_text("Cancelled")).to_be_visible()
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


def test_all_that_match_are_counted_then_changed(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, "email.send", 60)
    cancelled(queue, "image.resize", 2)
    page.goto(f"{site.url}/tasks?type=email.send")
    page.get_by_role("button", name="Retry all").click()
    assert "60 tasks that match the filter" in confirm(page, "Retry")
    eventually(lambda: queue.count(state="pending") == 60)
    page.get_by_role("button", name="Cancel all").click()
    assert "60 tasks" in confirm(page, "Cancel")
    eventually(lambda: queue.count(state="cancelled") == 62)
    page.get_by_role("button", name="Cancel all").click()
    expect(page.get_by_role("dialog")).to_contain_text("None of them can be cancelled")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True)).to_be_disabled()


def test_the_keyboard_alone_finds_opens_and_selects(page: Page, site: Site, queue: TaskQueue) -> None:
    newest = cancelled(queue, number=3)[-1]
    page.goto(f"{site.url}/tasks")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    page.keyboard.press("/")
    expect(page.get_by_label("Search in payload")).to_be_focused()
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


def test_limits_over_all_and_of_a_type(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.enqueue("email.send", {})
    page.goto(f"{site.url}/tasks")
    page.get_by_role("button", name="Limits").click()
    page.get_by_label("Tasks that may start in a second").fill("7.5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{site.url}/types")
    page.get_by_role("button", name="Limits of email.send").click()
    page.get_by_label("Tasks that may run at once").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("3 at once")).to_be_visible()
    assert {(each.name, each.rate, each.max_running) for each in queue.limits()} == {
        (None, 7.5, None),
        ("email.send", None, 3),
    }
    queue.set_rate_limit(0)
    queue.set_concurrency_limit(0, "email.send")


def test_a_type_is_paused_and_resumed(page: Page, site: Site, queue: TaskQueue) -> None:
    queue.enqueue("email.send", {})
    page.goto(f"{site.url}/types")
    page.get_by_role("button", name="Pause email.send").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("email.send is paused")).to_be_visible()
    assert queue.is_paused("email.send")
    page.get_by_role("button", name="Resume email.send").click()
    expect(page.get_by_role("button", name="Pause email.send")).to_be_visible()
    assert not queue.is_paused("email.send")


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

    page.get_by_role("button", name="Submit again").click()
    edited = json.dumps({"to": "grace"})
    page.get_by_label("Payload (JSON)").fill(edited)
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).not_to_have_url(f"{site.url}/tasks/{first.id}")
    second = queue.get(page.url.rpartition("/")[2])
    assert (second.kwargs, second.priority, second.max_retries) == ({"to": "grace"}, 7, first.max_retries)


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


def test_old_tasks_are_counted_then_cleaned_up(page: Page, site: Site, queue: TaskQueue) -> None:
    cancelled(queue, number=2)
    page.goto(f"{site.url}/")
    page.get_by_role("checkbox", name="Cancelled").check()
    page.get_by_role("button", name="Clean up").click()
    expect(page.get_by_role("dialog")).to_contain_text("No task is that old")
    expect(page.get_by_role("dialog").get_by_role("button", name="Delete them")).to_be_disabled()


def test_a_schedule_is_made_changed_run_paused_and_deleted(page: Page, site: Site, queue: TaskQueue) -> None:
    page.goto(f"{site.url}/schedules")
    expect(page.get_by_text("Nothing runs by itself yet.")).to_be_visible()
    page.get_by_role("button", name="New schedule").click()
    page.get_by_label("Name").fill("report")
    page.get_by_label("Type of task").fill("report.make")
    page.get_by_role("textbox", name="Cron").fill("61 * * * *")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("61 * * * *")
    page.get_by_role("textbox", name="Cron").fill("0 9 * * mon")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="0 9 * * mon UTC")).to_be_visible()

    page.get_by_role("button", name="Edit report").click()
    page.get_by_label("Repeats").select_option("every")
    page.get_by_role("spinbutton", name="Seconds").fill("90")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("every 1 min 30 s")).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("report was started.")).to_be_visible()
    assert queue.count(name="report.make") == 1
    page.get_by_role("button", name="Pause report").click()
    page.get_by_role("button", name="Resume report").click()
    expect(page.get_by_role("button", name="Pause report")).to_be_visible()
    page.get_by_role("button", name="Delete report").click()
    confirm(page, "Delete 1 schedule")
    expect(page.get_by_text("Nothing runs by itself yet.")).to_be_visible()
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
    expect(page.locator("tr[data-row]")).to_have_count(3)
    expect(page.get_by_role("button", name="Remove the error ValueError")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Run again: ValueError in charge").click()
    expect(page.get_by_role("dialog")).to_contain_text("3 tasks of type charge run again")
    page.get_by_label("Tasks in a second").fill("0.1")
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_text("Nothing has failed for good.")).to_be_visible()
    assert (queue.count(state="pending"), queue.count(state="delayed")) == (3, 2)
