"""The application's own check of who asks: what it raises is what the caller is answered."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import HTTPException, Request

from tasklib.http.security.auth import Principal
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file")
BODY = {"type": "job"}


@pytest.mark.parametrize(
    "status, detail, headers",
    [
        (401, "log in first", {"WWW-Authenticate": "Basic"}),
        (403, {"code": "blocked"}, {}),
        (404, "hidden", {}),
        (418, None, {}),
        (429, "slowly", {"Retry-After": "7"}),
        (499, "gone", {}),
        (503, "the directory is away", {"Retry-After": "3"}),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_it_raises_is_answered(
    queue: Face, status: int, detail: Any, headers: dict[str, str], is_async: bool
) -> None:
    def check(request: Request) -> str:
        raise HTTPException(status, detail, headers)

    async def acheck(request: Request) -> str:
        return check(request)

    client = Client(queue, queue.plain.asgi(auth=acheck if is_async else check))
    for method, path in (("GET", "/api/tasks"), ("POST", "/api/tasks"), ("POST", "/tasks"), ("GET", "/api/events")):
        answered = client.request(method, path, json=BODY if method == "POST" else None)
        assert (answered.status_code, answered.json()["status"]) == (status, status), (method, path)
        assert (
            headers.items() <= {name.title().replace("Www", "WWW"): v for name, v in answered.headers.items()}.items()
        )
    assert queue.count() == 0
    client.close()


@pytest.mark.parametrize("given", ["superuser", "", 7, ("admin",), Principal("ada", "superuser")], ids=str)  # type: ignore[arg-type]
def test_a_role_that_does_not_exist_is_refused_and_named_in_the_log(
    queue: Face, given: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(queue, queue.plain.asgi(auth=lambda request: given))
    for method, path in (("GET", "/api/tasks"), ("POST", "/api/tasks"), ("POST", "/tasks"), ("GET", "/api/events")):
        caplog.clear()
        answered = client.request(method, path, json=BODY if method == "POST" else None)
        assert answered.status_code == 403
        assert "a role that does not exist" in answered.json()["detail"]
        (said,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert repr(given.role if isinstance(given, Principal) else given) in said
        assert "known are: producer, worker, viewer, operator, admin" in said
    assert queue.count() == 0
    client.close()


def test_it_may_send_people_to_its_own_page(queue: Face) -> None:
    def check(request: Request) -> str:
        raise HTTPException(303, headers={"Location": "https://login.example.com/?next=tasks"})

    client = Client(queue, queue.plain.asgi(auth=check))
    for method, path in (("GET", "/"), ("GET", "/api/tasks"), ("POST", "/api/tasks")):
        answered = client.request(method, path, json=BODY if method == "POST" else None)
        assert answered.status_code == 303
        assert answered.headers["location"] == "https://login.example.com/?next=tasks"
    client.close()


@pytest.mark.parametrize("host", ["evil.example", "localhost"])
@pytest.mark.parametrize("path", ["/api/tasks/", "/tasks/?next=1", "/api/tasks/stats/"])
def test_a_redirect_never_follows_the_host_that_was_sent(http: Client, host: str, path: str) -> None:
    answered = http.get(path, headers={"Host": host, "X-Forwarded-Host": "evil.example"})

    assert answered.status_code == 307
    assert answered.headers["location"] == path.replace("/?", "?").rstrip("/")
