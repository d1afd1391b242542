"""Text from tasks is text: hundreds of hostile ones in every field, none runs, and no policy has to stop one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site

HIT = "window.hit=(window.hit||0)+1"
SHAPES = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
    "<iframe srcdoc='<script>parent.{}</script>'></iframe>",
    "<a href='javascript:{}'>x</a>",
    "javascript:{}",
    "data:text/html,<script>opener.{}</script>",
    "<details open ontoggle={}>",
    "<input autofocus onfocus={}>",
    "<style>@import 'javascript:{}'</style>",
    "<math><mtext><img src=x onerror={}></mtext></math>",
    "{{{{constructor.constructor('{}')()}}}}",
    "${{{}}}",
    "<base href='javascript:/'><a href={}>",
)
WRAPS = (
    *("{}", '"{}', "'{}", '">{}', "'>{}", "</textarea>{}", "</title>{}", "</script>{}", "-->{}", "]]>{}"),
    *("\\u003c{}", "&lt;{}", "%3C{}", "`{}", "__proto__{}", "constructor{}", "＜{}", "</pre>{}", "\\'{}", "/{}"),
)
HOSTILE = [wrap.format(shape.format(HIT)) for shape, wrap in itertools.product(SHAPES, WRAPS)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A queue of which every field is hostile."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", works=False) as site:
        fill(site)
        yield site


def fill(site: Site) -> None:
    """Put every hostile text everywhere where a text can be put."""
    queue = site.queue
    names = [text[:255] for text in HOSTILE]
    queue.submit_new(
        [
            queue.new_by_name(
                name, {name: [name]}, tags={name: name}, unique_key=name, concurrency_key=name, headers={name: name}
            )
            for name in names
        ]
    )
    for name in names[:20]:
        queue.add_schedule(name, task=name, cron="0 0 1 1 *", kwargs={name: name})
        queue.pause(name, by=name, reason=name)
    with httpx.Client(base_url=site.url) as http:
        work(http, names)


def work(http: httpx.Client, names: list[str]) -> None:
    """Be a worker with a hostile name that ends one task well and one badly, with everything there is to say."""
    instance = sent(http, "/api/workers", {"workerId": names[0], "types": names, "concurrency": 2})["instance"]
    first, second = sent(http, f"/api/workers/{instance}/claim", {"limit": 2})["tasks"]
    everything = {text: text for text in HOSTILE}
    said = {"version": first["version"], "progress": 0.5, "message": HOSTILE[1][:200]}
    sent(http, f"/api/tasks/{first['id']}/progress", said)
    sent(http, f"/api/tasks/{first['id']}/complete", {"version": first["version"], "result": everything})
    error = "\n".join([*HOSTILE, f"{HOSTILE[0]}: {HOSTILE[1]}"])
    sent(http, f"/api/tasks/{second['id']}/fail", {"version": second["version"], "error": error, "retry": False})


def sent(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    response = http.post(path, json=body)
    assert response.is_success, response.text
    return response.json() if response.content else None


def test_three_hundred_hostile_texts_in_every_field_do_nothing(page: Page, site: Site) -> None:
    assert len(set(HOSTILE)) == 300
    ended = [task.id for task in site.queue.list(state=["completed", "failed"])]
    assert len(ended) == 2
    paths = ["/", "/?range=1h", "/errors", "/workers", "/schedules", "/types", "/settings", "/tasks"]
    for path in (*paths, *(f"/tasks/{each}" for each in ended), f"/tasks?{urlencode({'search': HOSTILE[1]})}"):
        page.goto(site.url + path)
        expect(page.get_by_role("heading").first).to_be_attached()
        expect(page.locator(".bone")).to_have_count(0)
        assert page.evaluate("window.hit") is None, path
    page.goto(f"{site.url}/tasks")
    older = page.get_by_role("button", name="Older")
    for start in range(51, 300, 50):
        older.click()
        expect(page.get_by_label("Pages", exact=True)).to_contain_text(f"{start}–")
    assert page.evaluate("window.hit") is None


def test_dialogs_made_from_hostile_texts_do_nothing(page: Page, site: Site) -> None:
    (task,) = site.queue.list(state="completed")
    page.goto(f"{site.url}/tasks/{task.id}")
    page.get_by_role("button", name="Submit again").click()
    expect(page.get_by_label("Payload (JSON)")).to_contain_text("onerror")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("window.hit") is None
