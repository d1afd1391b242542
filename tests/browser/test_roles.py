"""Who sees and does what: the way in, viewers, operators, administrators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tasklib.storage.operations import tokens
from tasklib.storage.operations.tokens import Role
from tests.browser.site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Open to nobody without a token."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", auth="tokens", works=False) as site:
        site.queue.enqueue("email.send", {"to": "ada"})
        yield site


def token_of(site: Site, role: Role) -> str:
    return site.queue.database.run(lambda: tokens.create_token(str(role), role, now=None)).secret


def sign_in(page: Page, site: Site, role: Role, path: str = "/tasks") -> None:
    page.goto(site.url + path)
    page.get_by_label("Token").fill(token_of(site, role))
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Site]:
    """Open to this machine until the first token exists."""
    with Site(f"sqlite:///{tmp_path / 'tasks.db'}", auth="local", works=False) as site:
        yield site


def test_the_first_token_closes_the_door_and_keeps_its_maker_inside(page: Page, open_site: Site) -> None:
    site = open_site
    page.goto(f"{site.url}/settings")
    expect(page.get_by_text("local with the role admin")).to_be_visible()
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Whose it is").fill("root")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_text("shown this once")).to_be_visible()
    page.get_by_role("button", name="I have it").click()
    expect(page.get_by_text("root with the role admin")).to_be_visible()
    page.reload()
    expect(page.get_by_role("region", name="Tokens").get_by_role("row", name="root admin")).to_be_visible()


def test_a_viewer_sees_everything_and_changes_nothing(browser_page: Page, site: Site, screenshots: Path) -> None:
    page = browser_page
    page.goto(f"{site.url}/tasks")
    page.screenshot(path=screenshots / "sign-in.png")
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


def test_an_operator_acts_but_does_not_administrate(browser_page: Page, site: Site) -> None:
    page = browser_page
    sign_in(page, site, Role.OPERATOR)
    expect(page.get_by_role("button", name="Cancel email.send")).to_be_visible()
    page.goto(f"{site.url}/settings")
    expect(page.get_by_text("For administrators.")).to_be_visible()


def test_a_wrong_token_and_a_wrong_role_are_told_apart(browser_page: Page, site: Site) -> None:
    page = browser_page
    page.goto(f"{site.url}/")
    page.get_by_label("Token").fill("tl_nonsense")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("not known")).to_be_visible()
    sign_in(page, site, Role.PRODUCER)
    expect(page.get_by_text("may not see the dashboard")).to_be_visible()


def test_a_revoked_token_ends_the_session(browser_page: Page, site: Site) -> None:
    page = browser_page
    sign_in(page, site, Role.VIEWER)
    expect(page.locator("tr[data-row]")).to_have_count(1)
    for token in site.queue.database.run(lambda: tokens.list_tokens(None)):
        if token.role is Role.VIEWER:
            site.queue.database.run(lambda token=token: tokens.revoke_token(str(token.id), None))
    expect(page.get_by_label("Token")).to_be_visible()


@pytest.fixture
def browser_page(context: BrowserContext) -> Page:
    """A page on which being refused is no error."""
    return context.new_page()
