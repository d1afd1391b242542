"""A hundred secrets are planted in every way a task can hold one, and none comes out anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import Secret

from tasklib import TaskContext
from tasklib.cli.main import main
from tasklib.contrib.opentelemetry import TasklibInstrumentor
from tasklib.core.codec import MASK
from tasklib.core.redaction import DEFAULT_KEYS
from tests.fixtures.queues import Face, open_queue
from tests.integration.http.conftest import Client

SECRETS = [f"s3cr3t-{n:03}-värde" for n in range(100)]
pytestmark = pytest.mark.backends("sqlite-file")


@pytest.fixture
def queue(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Face]:
    """One that hides what stands under a key of ours too."""
    monkeypatch.setenv("TASKLIB_REDACT_KEYS", f"{DEFAULT_KEYS},pin")
    with open_queue(database_url, "awaiting") as face:
        yield face


@pytest.fixture
def spans(queue: Face) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    TasklibInstrumentor().instrument(tracer_provider=provider)
    yield exporter
    TasklibInstrumentor().uninstrument()
    provider.shutdown()


def plant(queue: Face, http: Client) -> None:
    """Secrets as arguments, in errors, results, progress and logs, of tasks that succeed and that fail."""
    plain = queue.plain

    @plain.task(name="annotated", max_retries=1)
    async def annotated(key: Secret[str], fails: bool, ctx: TaskContext) -> str:
        ctx.progress(0.5, f"with {key.get_secret_value()}")
        ctx.log.info("has %s", key.get_secret_value())
        if fails:
            raise ValueError(f"cannot use {key.get_secret_value()!r}")
        return f"used {key.get_secret_value()}"

    @plain.task(name="named", max_retries=0)
    def named(to: str, auth: dict[str, Any], ctx: TaskContext) -> Any:
        ctx.progress(0.5, f"as {auth['apiKey']}")
        ctx.log.warning("calling with %s", auth)
        raise RuntimeError(auth)

    @plain.task(name="configured", max_retries=0)
    def configured(pin: str, fails: bool, ctx: TaskContext) -> Any:
        ctx.progress(0.5, f"with {pin}")
        ctx.log.warning("dialling %s", pin)
        if fails:
            raise RuntimeError(f"refused {pin!r}")
        return {"said": f"it was {pin}"}

    @plain.task(name="found", max_retries=0)
    def found(number: int, ctx: TaskContext) -> Any:
        """Comes upon a secret that was no argument."""
        secret = SECRETS[number]
        ctx.progress(0.5, f"password={secret}")
        ctx.log.warning("answer: %s", {"access_token": secret})
        if number % 2:
            raise RuntimeError(f'{{"api_key": "{secret}"}}')
        return f"https://example.com/?token={secret}"

    numbers = iter(SECRETS)
    for n in range(40):
        plain.enqueue("annotated", {"key": next(numbers), "fails": n % 2 == 0})
    for n in range(10):
        plain.enqueue("configured", {"pin": next(numbers), "fails": n % 2 == 0})
    for _ in range(10):
        plain.enqueue("found", {"number": SECRETS.index(next(numbers))})
    for _ in range(10):
        secret = next(numbers)
        plain.enqueue("named", {"to": "ada", "auth": {"apiKey": secret, "inner": [{"password": secret}]}})
    for _ in range(20):
        secret = next(numbers)
        http.create("unknown", {"accessToken": secret, "note": "visible"}, tags={"note": f"for {secret}"})
    for n, secret in enumerate(numbers):
        body = {"name": f"every-{n}", "type": "unknown", "every": 1000, "payload": {"client_secret": secret}}
        assert secret not in http.post("/api/schedules", body).text


def everything_http_says(http: Client) -> str:
    paths = [path for path, operations in http.app.openapi()["paths"].items() if "get" in operations]
    plain = [path for path in paths if "{" not in path and path != "/api/events"]
    texts = [http.get(path).text for path in plain]
    for task in (task for page in range(2) for task in page_of(http, page)):
        texts += [http.get(f"/api/tasks/{task['id']}{more}").text for more in ("", "/explain")]
    texts += [http.get(f"/api/schedules/every-{n}").text for n in range(10)]
    texts.append(http.get("/api/tasks", params={"limit": 100}).text)
    return "\n".join(texts)


def page_of(http: Client, page: int) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = http.get("/api/tasks", params={"limit": 100, "offset": 100 * page}).json()["tasks"]
    return tasks


def test_a_hundred_secrets_are_never_shown(
    queue: Face,
    http: Client,
    spans: InMemorySpanExporter,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(logging.INFO):
        plant(queue, http)
        assert queue.process_batch() == 70
    said = everything_http_says(http)
    assert MASK in said
    assert "visible" in said
    for command in (["list", "--json", "--limit", "100"], ["schedules", "--json"], ["schedules"]):
        assert main([*command, "--database-url", queue.url]) == 0
    for task in page_of(http, 0)[::7]:
        assert main(["show", task["id"], "--database-url", queue.url]) == 0
        assert main(["explain", task["id"], "--json", "--database-url", queue.url]) == 0
    printed = capsys.readouterr().out
    traced = "\n".join(
        span.to_json() + str([dict(event.attributes or {}) for event in span.events])
        for span in spans.get_finished_spans()
    )
    assert (
        len(spans.get_finished_spans()) == 160
    )  # a submission and an attempt each, also of those that the service creates
    for outlet, text in {"http": said, "cli": printed, "logs": caplog.text, "traces": traced}.items():
        assert [secret for secret in SECRETS if secret in text] == [], outlet


def test_resubmitting_with_edits_keeps_the_secrets_that_were_not_seen(queue: Face, http: Client) -> None:
    made = http.create("unknown", {"token": "hunter2", "to": "ada"}, tags={"batch": "7"}, maxAttempts=5)
    shown = http.get(f"/api/tasks/{made['id']}").json()["payload"]
    assert shown == {"token": MASK, "to": "ada"}

    again = http.post(f"/api/tasks/{made['id']}/resubmit", {"payload": shown | {"to": "bob"}, "priority": 9})
    assert again.status_code == 201
    task = queue.read(again.json()["id"])
    assert (task.payload, task.tags, task.max_attempts) == ({"token": "hunter2", "to": "bob"}, {"batch": "7"}, 5)
    assert task.priority == 9
    assert http.post("/api/tasks/nonsense/resubmit", {"payload": {}}).status_code == 404


def test_a_schedule_that_is_changed_keeps_its_secrets(queue: Face, http: Client) -> None:
    http.post("/api/schedules", {"name": "s", "type": "job", "every": 60, "payload": {"password": "hunter2"}})
    shown = http.get("/api/schedules/s").json()["payload"]
    http.put("/api/schedules/s", {"type": "job", "every": 90, "payload": shown})
    assert queue.get_schedule("s").plan.kwargs == {"password": "hunter2"}


def test_who_submits_too_fast_is_told_when_to_come_back(queue: Face) -> None:
    queue.plain.config = queue.plain.config.with_(submit_rate_limit=0.001)
    client = Client(queue, queue.plain.asgi(auth=None))
    assert client.post("/api/tasks", {"type": "job"}).status_code == 201
    for path, body in (
        ("/api/tasks", {"type": "job"}),
        ("/tasks", {"type": "job"}),
        ("/api/tasks/batch", {"tasks": [{"type": "job"}]}),
    ):
        refused = client.post(path, body)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 1000
    assert queue.count() == 1
    client.close()


def test_deeply_nested_requests_are_refused(http: Client) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    headers = {"Content-Type": "application/json"}
    for body in (
        deep,
        '{"type": "job", "payload": ' + deep + "}",
        '{"type": "job", "payload": ' + "[" * 65 + "]" * 65 + "}",
    ):
        assert http.post("/api/tasks", content=body, headers=headers).status_code == 400


def test_over_https_the_cookie_is_bound_to_the_host(queue: Face) -> None:
    from tasklib.storage.operations.access import tokens

    made = queue.do(lambda: tokens.create_token("ada", tokens.Role.ADMIN))
    client = Client(queue, queue.plain.asgi(auth="tokens"), base_url="https://localhost")
    entered = client.post("/api/session", headers={"Authorization": f"Bearer {made.secret}"})
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith("__Host-tasklib_session=")
    assert "Secure" in cookie
    assert "Path=/;" in cookie + ";"
    assert client.get("/api/session").json()["name"] == "ada"
    client.close()


PROBE = {"search": "args.password:hunter2"}


def test_nobody_finds_out_a_secret_by_looking_for_it(queue: Face, http: Client) -> None:
    shown = http.create("open", {"note": "hunter2 is a film"})["id"]
    http.create("hidden", {"password": "hunter2"}, tags={"apiKey": "hunter2"}, uniqueKey="of hunter2")
    for term in ("hunter2", "HUNTER2", "hun"):
        page = http.get("/api/tasks", params={"search": term}).json()
        assert ([task["id"] for task in page["tasks"]], page["total"], page["nextCursor"]) == ([shown], 1, None)
        counted = http.post("/api/tasks/bulk", {"action": "cancel", "filter": {"search": term}, "dryRun": True})
        assert counted.json()["changed"] == 1
    for guess in ({"tag": "apiKey=hunter2"}, {"uniqueKey": "of hunter2"}, {"search": '"password": "hunter2"'}, PROBE):
        page = http.get("/api/tasks", params=guess).json()
        assert (page["tasks"], page["total"], page["nextCursor"]) == ([], 0, None)
    assert http.get("/api/tasks", params={"search": "password"}).json()["total"] == 1
    assert http.post("/api/tasks/bulk", {"action": "cancel", "filter": {"search": "hunter2"}}).json()["changed"] == 1
    assert {task.name: task.state for task in queue.list()} == {"open": "cancelled", "hidden": "pending"}
