"""Seed 002, sections 6 and 8.5: what the pseudocode of each page names is on that page, in a browser."""

from __future__ import annotations

import re
from colorsys import rgb_to_hls

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.site import Site

HUES = {"Pending": range(200, 260), "Processing": range(35, 65), "Completed": range(100, 170), "Failed": range(361)}
"""Degrees of blue, yellow and green; red is at both ends and asked for by itself."""


@pytest.fixture(scope="module")
def ids(site: Site) -> dict[str, str]:
    """A task in each of the four states."""
    queue = site.queue
    waiting = queue.enqueue("email.send", {"to": "later@example.com"}, delay_seconds=3600)
    completed = queue.enqueue("email.send", {"to": "ada@example.com"})
    failed = queue.enqueue("payment.charge", {"order": 7})
    running = queue.enqueue("image.resize", {"picture": "cat.jpg"})
    pending = queue.enqueue("nobody.knows")
    for task_id in (completed, failed):
        queue.wait(task_id, timeout=180)
    return {
        "waiting": str(waiting),
        "completed": str(completed),
        "failed": str(failed),
        "running": str(running),
        "pending": str(pending),
    }


def row_of(page: Page, task_id: str) -> Locator:
    return page.locator("tr[data-row]").filter(has=page.locator(f"code[title='{task_id}']"))


def buttons_of(place: Locator) -> set[str]:
    return {re.sub(r"\W.*", "", text) for text in place.get_by_role("button").all_inner_texts()}


def test_block_39_task_list(page: Page, site: Site, ids: dict[str, str]) -> None:
    """6.1 Task List View: controls, filters, a table with a row for each task, pages."""
    page.goto(f"{site.url}/tasks")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Limits")).to_be_visible()
    expect(page.get_by_label("Type", exact=True)).to_be_visible()
    for status in ("Pending", "Processing", "Completed", "Failed"):
        expect(page.get_by_role("checkbox", name=status)).to_be_visible()
    failed = row_of(page, ids["failed"])
    expect(failed).to_contain_text("payment.charge")
    expect(failed).to_contain_text("Failed")
    expect(failed.locator(".attempts")).to_have_text("1/3")
    expect(failed.locator(".created time")).to_be_visible()
    assert {"Retry", "Delete"} <= buttons_of(failed)
    assert "Delete" in buttons_of(row_of(page, ids["completed"]))
    assert not {"Retry", "Delete"} & buttons_of(row_of(page, ids["pending"]))
    expect(page.get_by_label("Pages", exact=True)).to_contain_text("of 5")


def test_block_40_task_detail(page: Page, site: Site, ids: dict[str, str]) -> None:
    """6.2 Task Detail View: what it is, payload, result, error, attempts, actions."""
    page.goto(f"{site.url}/tasks/{ids['completed']}")
    expect(page.get_by_role("heading", name="email.send Completed")).to_be_visible()
    expect(page.get_by_text(ids["completed"]).first).to_be_visible()
    for title in ("Payload", "Result", "Details"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    expect(page.get_by_text("message for ada@example.com")).to_be_visible()
    expect(page.get_by_role("button", name="Delete")).to_be_visible()

    page.goto(f"{site.url}/tasks/{ids['failed']}")
    expect(page.get_by_role("heading", name="Error")).to_be_visible()
    expect(page.get_by_text("card declined").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="Outcome")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_block_41_queue_stats(page: Page, site: Site, ids: dict[str, str]) -> None:
    """6.3 Queue Stats Dashboard: a card for each status, by type, last failures, tasks an hour, clean-up."""
    page.goto(f"{site.url}/")
    for status, number in {"pending": 2, "processing": 1, "completed": 1, "failed": 1}.items():
        expect(page.locator(f".card.{status} .card-number")).to_have_text(str(number))
    for title in ("By type", "Last failures", "Clean up"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    expect(page.get_by_text("Tasks in the last hour")).to_be_visible()
    expect(page.get_by_role("button", name="Clean up")).to_be_visible()


def test_block_42_status_badge(page: Page, site: Site, ids: dict[str, str]) -> None:
    """6.4 Status Badge Component: blue, yellow, green and red."""
    page.goto(f"{site.url}/tasks")
    for name, key in {
        "Pending": "pending",
        "Processing": "running",
        "Completed": "completed",
        "Failed": "failed",
    }.items():
        badge = row_of(page, ids[key]).locator(".badge")
        expect(badge).to_have_text(name)
        colour = badge.evaluate("element => getComputedStyle(element).color")
        red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
        hue = round(rgb_to_hls(red, green, blue)[0] * 360)
        assert hue in HUES[name]
        assert (name == "Failed") == (hue < 20 or hue > 340)


def test_block_54_the_page_is_mounted(page: Page, site: Site, ids: dict[str, str]) -> None:
    """8.5 Mount UI Routes: the list of tasks has an address of its own."""
    page.goto(f"{site.url}/tasks")
    expect(page).to_have_title(re.compile("^Tasks"))
    expect(page.locator("tr[data-row]")).to_have_count(5)
