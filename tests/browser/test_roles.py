"""Who sees and does what: the way in, viewers, operators, administrators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import Role
from tests.browser.acting import confirm, go
from tests.browser.conftest import take_picture
from tests.browser.site import Site
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Open to nobody without a token."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", auth="tokens", works=False) as site:
        queue = site.queue
        queue.register_handler("charge", charge)
        queue.enqueue("charge", {}, max_attempts=1)
        queue.process_batch()
        queue.unregister_handler("charge")
        queue.enqueue("email.send", {"to": "ada"})
        queue.add_schedule("report", task="email.send", cron="0 9 * * mon")
        yield site


def charge(payload: dict[str, int]) -> None:
    raise ValueError("there is no card")


def token_of(site: Site, role: Role) -> str:
    return site.queue.database.run(lambda: tokens.create_token(str(role), role)).secret


def sign_in(page: Page, site: Site, role: Role, path: str = "/tasks") -> None:
    page.goto(site.url + path)
    page.get_by_label("Token").fill(token_of(site, role))
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Site]:
    """Open to this machine until the first token exists. A test asks for it before its page: it must outlive that."""
    with Site(f"sqlite:///{tmp_path / 'tasks.db'}", auth="local", works=False) as site:
        yield site


def test_the_first_token_closes_the_door_and_keeps_its_maker_inside(open_site: Site, page: Page) -> None:
    site = open_site
    page.goto(f"{site.url}/settings")
    expect(page.get_by_text("local with the role admin")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("root")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("shown this once")).to_be_visible()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("root with the role admin")).to_be_visible()
    page.reload()
    expect(page.get_by_role("region", name="Tokens").get_by_role("row", name="root admin")).to_be_visible()


def test_an_administrator_makes_and_revokes_tokens(open_site: Site, page: Page) -> None:
    site = open_site
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    secrets: dict[str, str] = {}
    page.goto(f"{site.url}/settings")
    for name, role in (("root", "admin"), ("ada", "viewer")):
        page.get_by_role("button", name="New token").click()
        page.get_by_label("Name").fill(name)
        page.get_by_label("Role").select_option(role)
        page.get_by_label("Expires").select_option("90")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("button", name="Copy the token").click()
        expect(page.get_by_text("Copied.").first).to_be_visible()
        secrets[name] = str(page.evaluate("navigator.clipboard.readText()"))
        page.get_by_role("button", name="Done").click()
    with httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {secrets['ada']}"}, timeout=180) as ada:
        assert ada.get("/api/types").status_code == 200
        page.get_by_role("button", name="Revoke ada").click()
        confirm(page, "Revoke 1 token")
        expect(page.get_by_role("row", name="ada viewer")).to_contain_text("revoked")
        eventually(lambda: ada.get("/api/types").status_code == 401)
    expect(page.get_by_role("button", name="Revoke root")).to_be_visible()
    expect(page.get_by_role("region", name="Audit log").get_by_text("revoke token")).to_be_visible()


CHANGES = {
    "/": ["Limits", "Pause", "Clean up …"],
    "/tasks": ["Limits", "Pause", "New task", "Cancel email.send", "Prioritize email.send"],
    "/tasks/{waiting}": ["Duplicate & edit …", "Cancel", "Prioritize"],
    "/tasks/{failed}": ["Duplicate & edit …", "Retry", "Delete"],
    "/errors": ["Run again: ValueError"],
    "/schedules": ["New schedule", "Run now: report", "Pause report", "Edit report", "Delete report"],
    "/types": ["Limits of email.send", "Pause email.send"],
}
"""Every button that changes something, by page."""


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_who_may_change_something_is_offered_it_and_nobody_else(tolerant_page: Page, site: Site, role: Role) -> None:
    page = tolerant_page
    failed = next(task for task in site.queue.list(name="charge"))
    waiting = next(task for task in site.queue.list(name="email.send"))
    sign_in(page, site, role)
    expect(page.locator("tr[data-row]").first).to_be_visible()
    for path, names in CHANGES.items():
        go(page, path.format(failed=failed.id, waiting=waiting.id))
        expect(page.locator(".bone")).to_have_count(0)
        expect(page.locator("main [data-row], main .facts").first).to_be_visible()
        for name in names:
            offered = page.get_by_role("button", name=name)
            expect(offered.first).to_be_visible() if role is Role.OPERATOR else expect(offered).to_have_count(0)


def test_a_viewer_sees_everything_and_changes_nothing(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    page.goto(f"{site.url}/tasks")
    take_picture(page, "sign-in")
    sign_in(page, site, Role.VIEWER, "/tasks?type=email.send")
    expect(page).to_have_url(f"{site.url}/tasks?type=email.send")
    expect(page.locator("tr[data-row]").get_by_text("email.send")).to_be_visible()
    for name in ("Pause", "New task", "Cancel email.send", "Limits"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("checkbox", name="Select all on this page")).to_have_count(0)
    page.locator("tr[data-row] .row-link").click()
    expect(page.get_by_text("Why isn’t it running?")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.goto(f"{site.url}/settings")
    expect(page.get_by_text("For administrators.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_operator_acts_but_does_not_administrate(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    sign_in(page, site, Role.OPERATOR)
    expect(page.get_by_role("button", name="Cancel email.send")).to_be_visible()
    page.goto(f"{site.url}/settings")
    expect(page.get_by_text("For administrators.")).to_be_visible()


def test_a_wrong_token_and_a_wrong_role_are_told_apart(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    page.goto(f"{site.url}/")
    page.get_by_label("Token").fill("tl_nonsense")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("not known")).to_be_visible()
    sign_in(page, site, Role.PRODUCER)
    expect(page.get_by_text("may not see the dashboard")).to_be_visible()


def test_a_revoked_token_ends_the_session(tolerant_page: Page, site: Site) -> None:
    page = tolerant_page
    sign_in(page, site, Role.VIEWER)
    expect(page.locator("tr[data-row]")).to_have_count(2)
    for token in site.queue.database.run(lambda: tokens.list_tokens()):
        if token.role is Role.VIEWER:
            site.queue.database.run(lambda token=token: tokens.revoke_token(token.id))
    expect(page.get_by_label("Token")).to_be_visible()
