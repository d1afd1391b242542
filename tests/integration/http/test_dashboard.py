"""The dashboard as a browser is given it: one page for every address, its files, and the way in."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tasklib.http.admission.request_guard import SECURITY_HEADERS
from tasklib.http.pages.dashboard import PAGES
from tasklib.http.pages.sign_in import POLICY
from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import Role
from tests.fixtures.queues import Face
from tools import dashboard

pytestmark = pytest.mark.backends("sqlite-file")

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
MAX_SCRIPT_BYTES = 110 * 1024


class Browser:
    """A browser without a window: keeps cookies, takes HTML, and follows nothing by itself."""

    def __init__(self, queue: Face, app: Any) -> None:
        self._queue = queue
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=BROWSER)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._queue.run_coroutine(self.client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def sign_in(self, token: str, target: str = "") -> httpx.Response:
        return self.request("POST", "/sign-in", data={"token": token, "next": target})


@contextmanager
def browsing(queue: Face, app: Any) -> Iterator[Browser]:
    browser = Browser(queue, app)
    yield browser
    queue.run_coroutine(browser.client.aclose())


def token_of(queue: Face, role: Role = Role.VIEWER) -> str:
    return queue.do(lambda: tokens.create_token("ada", role)).secret


def test_every_page_is_the_same_document_under_the_same_policy(queue: Face) -> None:
    with browsing(queue, queue.plain.asgi(auth=None)) as browser:
        answers = [browser.get(path.format(task_id="some-id", group_id="some-id")) for path in PAGES]

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].headers["content-security-policy"] == SECURITY_HEADERS["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", answers[0].text)


@pytest.mark.parametrize("prefix", ["", "/queue"])
def test_every_file_of_the_page_is_found_also_under_a_prefix(queue: Face, prefix: str) -> None:
    app = queue.plain.asgi(auth=None)
    if prefix:
        outer = Starlette()
        outer.mount(prefix, app)
        app = outer
    with browsing(queue, app) as browser:
        page = browser.get(f"{prefix}/tasks?status=failed").text
        named = re.findall(r'(?:src|href)="([^"]+)"', page)
        files = [browser.get(name) for name in named]

    assert f'name="tasklib-root" content="{prefix}"' in page
    assert len(named) >= 3
    assert all(name.startswith(f"{prefix}/") for name in named)
    assert {file.status_code for file in files} == {200}


def test_files_are_compressed_kept_and_typed(queue: Face) -> None:
    name = next(each.name for each in (dashboard.BUILT / "assets").iterdir() if each.suffix == ".js")
    with browsing(queue, queue.plain.asgi(auth=None)) as browser:
        packed = browser.get(f"/assets/{name}", headers={"Accept-Encoding": "gzip"})
        plain = browser.get(f"/assets/{name}", headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert "immutable" in packed.headers["cache-control"]
    assert packed.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["../index.html", "..%2findex.html", "nothing.js", ".built-from", "%00"])
def test_no_other_file_is_given_away(queue: Face, name: str) -> None:
    with browsing(queue, queue.plain.asgi(auth=None)) as browser:
        answer = browser.get(f"/assets/{name}")
    assert answer.status_code == 404


def test_all_scripts_together_are_small() -> None:
    scripts = [each.read_bytes() for each in (dashboard.BUILT / "assets").iterdir() if each.suffix == ".js"]
    assert scripts
    assert sum(len(gzip.compress(script, 9)) for script in scripts) <= MAX_SCRIPT_BYTES


def test_who_is_not_signed_in_gets_a_form_and_nothing_else(queue: Face) -> None:
    token_of(queue)
    with browsing(queue, queue.plain.asgi(auth="tokens")) as browser:
        answer = browser.get("/tasks?status=failed&search=%22%3E%3Cscript%3E")

    assert answer.status_code == 401
    assert answer.headers["content-security-policy"] == POLICY
    assert 'type="password"' in answer.text
    assert "<script" not in answer.text


def test_a_token_opens_the_page_that_was_wanted(queue: Face) -> None:
    secret = token_of(queue)
    with browsing(queue, queue.plain.asgi(auth="tokens")) as browser:
        wrong = browser.sign_in("tl_wrong")
        right = browser.sign_in(secret, "tasks?status=failed")
        page = browser.get(right.headers["location"])

    assert wrong.status_code == 401
    assert "not known" in wrong.text
    assert right.status_code == 303
    assert right.headers["location"] == "/tasks?status=failed"
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page.status_code == 200


@pytest.mark.parametrize(
    "target", ["//evil.example/x", "https://evil.example", "\\\\evil.example", "/\r\n//evil.example"]
)
def test_signing_in_leads_nowhere_else(queue: Face, target: str) -> None:
    secret = token_of(queue)
    with browsing(queue, queue.plain.asgi(auth="tokens")) as browser:
        location = httpx.URL("http://localhost/").join(browser.sign_in(secret, target).headers["location"])
    assert location.host == "localhost"


def test_a_role_that_may_not_look_is_told_so(queue: Face) -> None:
    secret = token_of(queue, Role.PRODUCER)
    with browsing(queue, queue.plain.asgi(auth="tokens")) as browser:
        browser.sign_in(secret)
        answer = browser.get("/")

    assert answer.status_code == 403
    assert "may not see the dashboard" in answer.text


def test_a_link_on_another_site_finds_the_cookie_at_the_second_look(queue: Face) -> None:
    token_of(queue)
    with browsing(queue, queue.plain.asgi(auth="tokens")) as browser:
        first = browser.get("/tasks", headers={"Sec-Fetch-Site": "cross-site"})
        second = browser.get("/tasks", headers={"Sec-Fetch-Site": "same-origin"})

    assert 'http-equiv="refresh"' in first.text
    assert 'http-equiv="refresh"' not in second.text


def test_where_the_application_decides_no_token_is_asked_for(queue: Face) -> None:
    with browsing(queue, queue.plain.asgi(auth=lambda request: None)) as browser:
        answer = browser.get("/")

    assert answer.status_code == 401
    assert "<form" not in answer.text
