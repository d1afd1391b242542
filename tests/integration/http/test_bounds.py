"""What callers can make without end is shown and kept in bounds."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

import pytest

from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def fill(queue: Face, names: int) -> None:
    """So many types of one task each, beside a busy one."""
    columns = "name, kwargs"
    rows = ", ".join(f"('made-up-{n:05}', '{{}}')" for n in range(names))
    queue.sql(f"INSERT INTO tasks ({columns}) VALUES {rows}, ('zz-busy', '{{}}'), ('zz-busy', '{{}}')")


def test_made_up_types_cannot_fill_what_everybody_reads(queue: Face, http: Client) -> None:
    queue.count()
    fill(queue, 2000)

    stats = http.get("/api/tasks/stats").json()
    assert (len(stats["byType"]), stats["typesLeftOut"], stats["pending"]) == (500, 1501, 2002)
    assert stats["byType"]["zz-busy"]["pending"] == 2
    lines = http.get("/metrics").text.splitlines()
    tasks = [line for line in lines if line.startswith("tasklib_tasks{") and 'status="pending"' in line]
    assert len(tasks) == 501
    assert sum(float(line.rpartition(" ")[2]) for line in tasks) == 2002
    assert {'tasklib_tasks{status="pending",type="zz-busy"} 2.0', "tasklib_types 2001.0"} <= set(lines)
    assert len([line for line in lines if line.startswith("tasklib_paused{")]) == 500


def test_lists_have_parts(queue: Face, http: Client) -> None:
    queue.count()
    fill(queue, 1200)
    for number in range(3):
        queue.add_schedule(f"s{number}", task="job", every=60)
        queue.worker("job")
        http.post("/api/tokens", {"name": f"t{number}"})
        queue.set_key_limit(2, f"k{number}")

    types = http.get("/api/types").json()
    assert (len(types["types"]), types["total"]) == (1000, 1202)
    rest = http.get("/api/types?offset=1000").json()["types"]
    assert [len(rest), rest[-1]["type"]] == [202, "zz-busy"]
    for path, field in (
        ("/api/schedules", "schedules"), ("/api/workers", "workers"), ("/api/tokens", "tokens"),
        ("/api/control", "keyLimits"),
    ):  # fmt: skip
        everything = http.get(path).json()
        assert (len(everything[field]), everything.get("total", 3)) == (3, 3), path
        assert http.get(f"{path}?limit=1&offset=1").json()[field] == everything[field][1:2], path
        for wrong in ("limit=1001", "limit=0", "offset=-1", "limt=5"):
            assert http.get(f"{path}?{wrong}").status_code == 400


def test_one_caller_cannot_fill_the_table_of_workers(queue: Face, http: Client) -> None:
    """Its thousand are its own: others register as before, and one that stops makes room."""
    body = {"workerId": "w", "types": ["job"]}
    tokens = [http.post("/api/tokens", {"name": "js", "role": "worker"}).json()["secret"] for _ in range(2)]
    app = queue.plain.asgi(auth="tokens")
    greedy, other = (Client(queue, app, Authorization=f"Bearer {each}") for each in tokens)
    instance = greedy.post("/api/workers", body).json()["instance"]
    same = "worker_id, host, pid, started_at, heartbeat_at, timeout_seconds, concurrency, names, info, owner"
    ids = ", ".join(f"('{uuid4()}')" for _ in range(999))
    cast = "" if queue.is_sqlite else "::uuid"
    queue.sql(
        f"WITH ids (id) AS (VALUES {ids}) INSERT INTO tasklib_workers (instance, {same}) "
        f"SELECT ids.id{cast}, {same} FROM tasklib_workers CROSS JOIN ids"
    )

    refused = greedy.post("/api/workers", body)
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:tasklib:problem:too-many-workers")
    assert other.post("/api/workers", body).status_code == 201
    assert greedy.delete(f"/api/workers/{instance}").status_code == 204
    assert greedy.post("/api/workers", body).status_code == 201
    greedy.close()
    other.close()


def emoji(count: int) -> str:
    """Characters of four bytes each, in an order that no index can compress."""
    return "".join(chr(random.Random(count + n).randrange(0x1F300, 0x1F5FF)) for n in range(count))


@pytest.mark.parametrize("count, fits", [(375, True), (376, False), (500, False)])
def test_a_key_that_does_not_fit_an_index_is_refused(queue: Face, http: Client, count: int, fits: bool) -> None:
    name, key = emoji(255), emoji(count)
    asked: list[tuple[str, Any, int]] = [
        ("/api/tasks", {"type": name, "options": {"uniqueKey": key}}, 201),
        ("/api/tasks", {"type": name, "options": {"concurrencyKey": key}}, 201),
        ("/api/tasks/batch", {"tasks": [{"type": name, "options": {"concurrencyKey": key}}]}, 201),
        ("/api/tasks/key-limit", {"type": name, "key": key, "maxRunning": 2}, 200),
        ("/api/schedules", {"name": name, "type": name, "every": 60, "options": {"concurrencyKey": key}}, 201),
    ]
    for path, body, status in asked:
        answered = http.post(path, body)
        assert answered.status_code == (status if fits else 400), (path, answered.text)
    assert queue.count() == (3 if fits else 0)
    for filtered in ("uniqueKey", "concurrencyKey"):
        assert len(http.get("/api/tasks", params={filtered: key}).json()["tasks"]) == fits * {"uniqueKey": 1}.get(
            filtered, 2
        )


def test_a_key_made_of_tags_is_a_key_like_any_other(queue: Face, http: Client) -> None:
    @queue.plain.task(name="tenant_job", concurrency_key="tenant-{tenant}")
    def work() -> None: ...

    body = {"type": "tenant_job", "options": {"tags": {"tenant": emoji(2000)}}}
    refused = http.post("/api/tasks", body)
    assert (refused.status_code, "concurrency key" in refused.json()["detail"]) == (400, True)
    assert http.post("/api/tasks", {**body, "options": {"tags": {"tenant": emoji(20)}}}).status_code == 201


def test_a_query_of_countless_parameters_is_refused_before_anybody_looks_at_them(queue: Face, http: Client) -> None:
    refused = http.get("/api/tasks?" + "&".join(f"made-up-{n}" for n in range(2000)))
    assert (refused.status_code, "split the request" in refused.json()["detail"]) == (400, True)
    assert http.get("/api/scale?" + "&".join(f"type=made-up-{n}" for n in range(1000))).json()["total"] == 1000


@pytest.mark.parametrize("body", ["[" * 5000 + "]" * 5000, "9" * 6000], ids=["deep", "long"])
def test_a_body_that_python_cannot_read_is_answered_with_the_reason(queue: Face, http: Client, body: str) -> None:
    content = f'{{"type": "x", "payload": {body}}}'
    refused = http.post("/api/tasks", content=content, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["detail"][:24]) == (400, "the body cannot be read:")


@pytest.mark.backends("sqlite-file")
@pytest.mark.parametrize("path", ["/api/tasks", "/tasks", "/api/tasks/batch"])
def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_failure_of_ours(
    queue: Face, http: Client, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    sent = [{"type": "http.request", "body": b'{"type": "job', "more_body": True}, {"type": "http.disconnect"}]
    answered: list[Any] = []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "headers": headers}
    scope |= {"query_string": b"", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("localhost", 80)}

    async def receive() -> Any:
        return sent.pop(0)

    async def send(message: Any) -> None:
        answered.append(message)

    async def leave() -> None:
        await http.app(scope, receive, send)

    queue.run_coroutine(leave())

    assert answered[0]["status"] == 400
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert queue.count() == 0
