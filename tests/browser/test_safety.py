"""Text from tasks is text: hundreds of hostile ones in every field, none runs, and no policy has to stop one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from tasklib import TaskContext, TaskQueue
from tasklib.core.calls.task_logger import MAX_MESSAGE_LENGTH
from tasklib.core.schedule import Plan
from tasklib.core.task import NewTask
from tasklib.storage.operations import schedules, workers
from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.limits import pauses
from tasklib.storage.operations.workers import Registration
from tasklib.storage.statement import BEGIN, Operation
from tests.browser.acting import go
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
NAMES = [text[:255] for text in HOSTILE]
"""As much of each as a name may hold: all of it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A queue of which every field is hostile."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'tasks.db'}", works=False) as site:
        fill(site.queue)
        with httpx.Client(base_url=site.url, timeout=180) as http:
            work(http)
        yield site


def fill(queue: TaskQueue) -> None:
    """Put every hostile text everywhere where a text can be put."""
    queue.submit_new([new(queue, name) for name in NAMES])
    for name in NAMES:
        queue.register_handler(name, end_badly)
    queue.process_batch(len(NAMES))
    for name in NAMES:
        queue.unregister_handler(name)
    queue.submit_new([new(queue, name) for name in NAMES])
    queue.database.run(arrange)


def arrange() -> Operation[None]:
    """Schedules, limits, tokens and workers, in one transaction."""
    yield BEGIN
    for name in NAMES:
        yield from schedules.put_schedule(Plan(name=name, task=name, cron="0 0 1 1 *", kwargs={name: name}))
        yield from pauses.set_rate(name, 5)
        yield from tokens.create_token(name, tokens.Role.VIEWER)
        yield from workers.register_worker(Registration(uuid4(), name, name, 1, 600, 1, (name,), {"retention": name}))


def pause_all() -> Operation[None]:
    """Every type, by somebody hostile and for a hostile reason."""
    yield BEGIN
    for name in NAMES:
        yield from pauses.pause(name, by=name, reason=name)


def new(queue: TaskQueue, name: str) -> NewTask:
    texts = {"unique_key": name, "concurrency_key": name, "headers": {name: name}, "tags": {name: name}}
    return queue.new_by_name(name, {name: [name]}, max_retries=0, **texts)


def end_badly(payload: dict[str, list[str]], ctx: TaskContext) -> None:
    (text,) = payload
    ctx.log.error("%s", text)
    raise ValueError(text)


def work(http: httpx.Client) -> None:
    """Be a worker that ends one task well and one badly with everything there is to say, and is busy with others."""
    instance = sent(http, "/api/workers", {"workerId": "w", "types": NAMES, "concurrency": 100})["instance"]
    well, badly, *running = sent(http, f"/api/workers/{instance}/claim", {"limit": 100})["tasks"]
    sent(
        http,
        f"/api/tasks/{well['id']}/complete",
        {"version": well["version"], "result": {text: text for text in HOSTILE}},
    )
    error = "\n".join([*HOSTILE, f"{HOSTILE[0]}: {HOSTILE[1]}"])
    sent(http, f"/api/tasks/{badly['id']}/fail", {"version": badly["version"], "error": error, "retry": False})
    for task, message in zip(running, messages(), strict=False):
        sent(
            http, f"/api/tasks/{task['id']}/progress", {"version": task["version"], "progress": 0.5, "message": message}
        )


def messages() -> list[str]:
    """All hostile texts, as many in a message of progress as it holds."""
    found = [""]
    for text in HOSTILE:
        if len(found[-1]) + len(text) > MAX_MESSAGE_LENGTH:
            found.append("")
        found[-1] += text
    return found


def sent(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    response = http.post(path, json=body)
    assert response.is_success, response.text
    return response.json() if response.content else None


def test_three_hundred_hostile_texts_in_every_field_do_nothing(page: Page, site: Site) -> None:
    assert len(set(HOSTILE)) == 300
    assert len(messages()) < 98
    ended = [*site.queue.list(state="completed"), *site.queue.list(state="failed", limit=2)]
    busy = next(task for task in site.queue.list(state="running") if task.progress)
    shown = {
        "/": "Last failures",
        "/?range=1h": "Throughput",
        "/tasks": "Processing",
        "/errors": "ValueError",
        "/workers": "Stuck threads",
        "/schedules": "0 0 1 1 *",
        "/types": "5/s",
        "/settings": "Revoke",
        f"/tasks?{urlencode({'search': HOSTILE[1]})}": "Failed",
        f"/tasks/{busy.id}": "50 %",
        **{f"/tasks/{task.id}": "Copy" for task in ended},
    }
    page.goto(f"{site.url}/settings")
    for path, text in shown.items():
        go(page, path)
        expect(page.get_by_text(text).first).to_be_visible()
        expect(page.locator(".bone")).to_have_count(0)
        assert page.evaluate("window.hit") is None, path
    go(page, "/tasks")
    older = page.get_by_role("button", name="Older")
    for start in range(51, 300, 50):
        older.click()
        expect(page.get_by_label("Pages", exact=True)).to_contain_text(f"{start}–")
    assert page.evaluate("window.hit") is None


def test_dialogs_made_from_hostile_texts_do_nothing(page: Page, site: Site) -> None:
    (task,) = site.queue.list(state="completed")
    page.goto(f"{site.url}/tasks/{task.id}")
    page.get_by_role("button", name="Duplicate & edit").click()
    expect(page.get_by_label("Payload (JSON)")).to_contain_text("window.hit")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("window.hit") is None


def test_hostile_names_and_reasons_of_pauses_do_nothing(page: Page, site: Site) -> None:
    site.queue.database.run(pause_all)
    page.goto(f"{site.url}/types")
    page.get_by_role("button", name="Show all", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="is paused by")).to_have_count(300)
    assert page.evaluate("window.hit") is None
