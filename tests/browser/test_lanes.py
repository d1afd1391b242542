"""Lanes: every attempt that ran, where and when, and the way from one to its task."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tasklib.service.insights import lanes
from tests.browser.acting import go
from tests.browser.site import Site

STILL = "&until=2099-01-01T00:00:00Z"
"""Up to now, read once: a picture that is read again moves under the pointer."""
FIRST_PIECE = """path => {
    const [, x, y] = path.getAttribute("d").match(/^M([\\d.]+) ([\\d.]+)/);
    return [Number(x), Number(y)];
}"""
"""Where in its picture the first piece of a colour is: all are one path, and its corner may be that of none of them."""


def test_lanes_show_every_attempt_and_lead_to_its_task(page: Page, site: Site, done: list[str]) -> None:
    page.goto(f"{site.url}/lanes?seconds=900{STILL}")
    picture = page.get_by_role("img", name="lane")
    expect(picture).to_have_attribute("aria-label", re.compile("1 lane with 8 attempts .* 2 failed, 0 lost"))
    expect(page.locator(".lane-keys")).to_contain_text("payment.charge")
    page.get_by_text("As a table").click()
    row = page.locator(".lane-table tbody tr")
    expect(row.locator(".number").nth(2)).to_have_text("8")
    expect(row.locator(".number").nth(3)).to_have_text("2")

    # The red end of an attempt that failed: where it is drawn, it is found.
    x, y = page.locator("path.t-bad").evaluate(FIRST_PIECE)
    picture.hover(position={"x": x + 1, "y": y + 1})
    expect(page.locator(".lane-told")).to_contain_text("payment.charge failed, ran")
    picture.click(position={"x": x + 1, "y": y + 1})
    expect(page.get_by_role("heading", name="payment.charge")).to_be_visible()
    assert page.url.rpartition("/")[2] in done


def test_a_stretch_of_the_lanes_is_zoomed_into_and_leads_to_its_tasks(page: Page, site: Site, done: list[str]) -> None:
    page.goto(f"{site.url}/lanes?seconds=3600{STILL}")
    picture = page.get_by_role("img", name="with 8 attempts")
    expect(picture).to_be_visible()

    def brush() -> None:
        """Over the last 200 pixels and the edge, begun when the picture stands still, for which `hover` waits."""
        width = picture.evaluate("picture => picture.clientWidth")
        picture.hover(position={"x": width - 200, "y": 6})
        page.mouse.down()
        box = picture.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + width + 5, box["y"] + 6, steps=4)
        page.mouse.up()

    brush()
    page.get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"/lanes\?seconds=\d{2,3}&until="))
    expect(page.get_by_role("img", name="with 8 attempts")).to_be_visible()
    page.get_by_role("button", name="Zoom out").click()
    expect(page).to_have_url(re.compile(r"seconds=\d{3,4}"))
    expect(page.get_by_role("img", name="with 8 attempts")).to_be_visible()

    go(page, f"/lanes?seconds=3600{STILL}")
    expect(page.get_by_role("img", name="with 8 attempts")).to_be_visible()
    brush()
    page.get_by_role("button", name="Tasks of this time").click()
    expect(page).to_have_url(re.compile("/tasks.*after="))
    expect(page.locator("tr[data-row]")).to_have_count(8)


def test_many_attempts_are_drawn_added_up(
    page: Page, site: Site, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MOST_ATTEMPTS", 3)
    # A day in steps of minutes: all of it is in the last one.
    page.goto(f"{site.url}/lanes?seconds=86400{STILL}")
    expect(page.get_by_role("img", name="1 lane with 8 attempts")).to_be_visible()
    expect(page.locator(".lane-keys")).to_contain_text("many failed")
    x, y = page.locator("path.t-bad").evaluate(FIRST_PIECE)
    page.locator(".lane-picture").hover(position={"x": x + 1, "y": y})
    expect(page.locator(".lane-told")).to_contain_text("8 ended, 2 failed")
