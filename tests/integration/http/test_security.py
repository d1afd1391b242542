"""Secure by default: who gets in, who may do what, what is refused at the door, and what is written down."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from tasklib.errors import ConfigurationError
from tasklib.http.admission.request_guard import SECURITY_HEADERS
from tasklib.http.pages.dashboard import PAGES
from tasklib.http.security.auth import GRANTS, Permission, Principal
from tasklib.http.security.tokens import TokenCheck
from tasklib.service.tokens import Tokens
from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import Role
from tests.fixtures.queues import Face
from tests.fixtures.waiting import eventually
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")

HEALTH = {("HEAD", "/healthz"), ("HEAD", "/readyz")}
PUBLIC = {("GET", "/healthz"), ("GET", "/readyz"), *HEALTH}
EXAMPLES = {
    "task_id": "550e8400-e29b-41d4-a716-446655440000",
    "instance": "550e8400-e29b-41d4-a716-446655440000",
    "name": "nightly",
    "group_id": "0123456789abcdef",
    "token_id": "550e8400-e29b-41d4-a716-446655440000",
    "key": "sure",
}


def make_token(queue: Face, role: Role = Role.ADMIN, **options: Any) -> str:
    made = queue.do(lambda: tokens.create_token("ada", role, **options))
    return made.secret


@contextmanager
def client_of(queue: Face, auth: Any, **headers: str) -> Iterator[Client]:
    client = Client(queue, queue.plain.asgi(auth=auth), **headers)
    yield client
    client.close()


def routes_of(app: Any) -> list[tuple[str, str, Any]]:
    """Every route there is, also those that the description does not mention, however deep they are included."""
    found: list[tuple[str, str, Any]] = []
    waiting = list(app.router.routes)
    while waiting:
        route = waiting.pop()
        inner = getattr(route, "original_router", None)
        if inner is not None:
            waiting += inner.routes
        elif hasattr(route, "methods"):
            path = route.path_format.format(**EXAMPLES)
            found += [(method, path, route) for method in route.methods or ()]
        else:
            found.append(("GET", route.path, route))
    return found


def test_the_enumeration_finds_every_route(queue: Face, http: Client) -> None:
    described = {
        (method.upper(), path.format(**EXAMPLES))
        for path, operations in http.app.openapi()["paths"].items()
        for method in operations
    }

    found = {(method, path) for method, path, _ in routes_of(http.app)}
    assert found >= described
    pages = {("GET", path.format(**EXAMPLES)) for path in (*PAGES, "/assets/{name}", "/icon.svg")}
    assert found - described == {("GET", "/openapi.json"), ("POST", "/sign-in"), ("POST", "/mcp"), *HEALTH, *pages}


@pytest.mark.parametrize("auth", ["tokens", "local"])
def test_once_a_token_exists_only_health_answers_without_one(queue: Face, auth: str) -> None:
    make_token(queue)
    with client_of(queue, auth) as anonymous:
        answered = {
            (method, path)
            for method, path, _ in routes_of(anonymous.app)
            if anonymous.request(method, path).status_code != 401
        }

    assert answered == PUBLIC


def test_every_route_declares_what_it_needs(http: Client) -> None:
    declared = {(method, path): route.openapi_extra["x-permission"] for method, path, route in routes_of(http.app)}

    assert {where for where, permission in declared.items() if permission == Permission.PUBLIC} == PUBLIC
    unsafe = {where for where in declared if where[0] not in ("GET", "HEAD")}
    # What an agent may do beside reading depends on its role: test_agents.py.
    assert {where for where in unsafe if declared[where] == Permission.READ} == {("POST", "/mcp")}


def test_a_route_that_declares_nothing_answers_nobody(queue: Face) -> None:
    app = queue.plain.asgi(auth=None)
    app.add_api_route("/forgotten", lambda: "secret", methods=["GET"])
    client = Client(queue, app)

    assert client.get("/forgotten").status_code == 403
    client.close()


@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_what_it_is_granted_and_no_more(queue: Face, role: Role) -> None:
    secret = make_token(queue, role)
    with client_of(queue, "tokens", Authorization=f"Bearer {secret}") as client:
        for method, path, route in routes_of(client.app):
            permission = Permission(route.openapi_extra["x-permission"])
            allowed = permission is Permission.PUBLIC or permission in GRANTS[role]
            # One does not end, and the other answers by its own protocol.
            if not path.endswith(("/events", "/mcp")) or not allowed:
                assert (client.request(method, path).status_code == 403) is not allowed, (method, path)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer nonsense", "Bearer tl_" + "x" * 43, "Basic dGw=", "Bearer " + "x" * 5000]
)
def test_a_wrong_token_is_401(queue: Face, header: str) -> None:
    make_token(queue)
    with client_of(queue, "local", Authorization=header) as client:
        response = client.get("/api/tasks")

    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_an_expired_token_is_refused_and_does_not_open_the_door(queue: Face) -> None:
    secret = make_token(queue, expires_at=queue.now + timedelta(hours=1))
    with client_of(queue, "local", Authorization=f"Bearer {secret}") as client, client_of(queue, "local") as anonymous:
        assert client.get("/api/tasks").status_code == 200
        queue.advance(3601)
        eventually(lambda: client.get("/api/tasks").status_code == 401)
        assert anonymous.get("/api/tasks").status_code == 401


def test_a_revoked_token_is_refused_within_a_second(queue: Face) -> None:
    secret = make_token(queue)
    with client_of(queue, "tokens", Authorization=f"Bearer {secret}") as client:
        assert client.get("/api/tasks").status_code == 200
        assert queue.do(lambda: tokens.revoke_tokens("ada"))
        eventually(lambda: client.get("/api/tasks").status_code == 401)


def test_only_the_hash_of_a_token_is_kept(queue: Face) -> None:
    secret = make_token(queue)

    (row,) = queue.sql("SELECT * FROM tasklib_tokens")
    assert row["hash"] == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in str(row)
    assert secret.startswith("tl_")


def test_the_use_of_a_token_is_noted(queue: Face) -> None:
    secret = make_token(queue)
    with client_of(queue, "tokens", Authorization=f"Bearer {secret}") as client:
        client.get("/api/tasks")

    (token,) = queue.do(lambda: tokens.list_tokens())
    assert token.last_used_at == queue.now


def test_without_tokens_this_machine_gets_in(queue: Face) -> None:
    with client_of(queue, "local") as client:
        assert client.create()["status"] == "pending"


def test_with_tokens_demanded_nobody_gets_in_before_the_first(queue: Face) -> None:
    with client_of(queue, "tokens") as client:
        assert client.get("/api/tasks").status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0", "", "[::1", "localhost:x"]
)
def test_another_host_is_refused(queue: Face, host: str) -> None:
    with client_of(queue, "local", Host=host) as client:
        assert client.get("/api/tasks").status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
def test_this_machine_is_a_host(queue: Face, host: str) -> None:
    with client_of(queue, "local", Host=host) as client:
        assert client.get("/api/tasks").status_code == 200


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("auth", ["local", None])
def test_another_site_changes_nothing(queue: Face, headers: dict[str, str], auth: Any) -> None:
    with client_of(queue, auth) as client:
        for method, path, _ in routes_of(client.app):
            if method not in ("GET", "HEAD"):
                assert client.request(method, path, headers=headers).status_code == 403, (method, path)
    assert queue.count() == 0
    assert not queue.is_paused()


def test_our_own_page_may_change(queue: Face) -> None:
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    with client_of(queue, "local", **headers) as client:
        assert client.post("/api/tasks", {"type": "job"}).status_code == 201


def test_the_application_around_us_decides(queue: Face) -> None:
    async def decide(request: Any) -> Any:
        return {"v": "viewer", "o": Principal("olga", Role.OPERATOR)}.get(request.headers.get("x-user"))

    with client_of(queue, decide) as client:
        assert client.get("/api/tasks").status_code == 401
        assert client.get("/api/tasks", headers={"X-User": "v"}).status_code == 200
        assert client.post("/api/tasks/pause", headers={"X-User": "v"}).status_code == 403
        assert client.post("/api/tasks/pause", headers={"X-User": "o"}).status_code == 200
    assert queue.pauses()[0].by == "olga"


def test_how_to_check_must_be_said(queue: Face) -> None:
    with pytest.raises(TypeError, match="auth"):
        queue.plain.asgi()
    with pytest.raises(ConfigurationError, match="auth is"):
        queue.plain.asgi(auth="tokns")


@pytest.mark.parametrize("path", ["/healthz", "/api/tasks", "/api/nothing", "/api/tasks/nobody"])
def test_every_answer_has_the_security_headers(http: Client, path: str) -> None:
    headers = http.get(path).headers

    assert {name for name in SECURITY_HEADERS if name not in headers} == set()
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_a_request_too_large_is_413(queue: Face, http: Client) -> None:
    large = b'{"type": "job", "payload": "' + b"x" * (3 << 20) + b'"}'

    assert http.request("POST", "/api/tasks", content=large).status_code == 413

    async def chunks() -> Any:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    json = {"Content-Type": "application/json"}
    assert http.request("POST", "/api/tasks", content=chunks(), headers=json).status_code == 413
    assert queue.count() == 0


def test_a_session_holds_the_token_where_no_script_reads_it(queue: Face) -> None:
    secret = make_token(queue, Role.OPERATOR)
    with client_of(queue, "local") as client:
        assert client.post("/api/session").status_code == 401
        entered = client.post("/api/session", headers={"Authorization": f"Bearer {secret}"})
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert client.get("/api/session").json()["role"] == "operator"
        assert client.post("/api/tasks/pause", headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.delete("/api/session").status_code == 204
        assert client.get("/api/session").status_code == 401


def test_an_administrator_makes_and_revokes_tokens_over_http(queue: Face) -> None:
    with client_of(queue, "tokens", Authorization=f"Bearer {make_token(queue)}") as admin:
        made = admin.post("/api/tokens", {"name": "grace", "role": "operator", "expiresAt": "2099-01-01T00:00:00Z"})
        assert made.status_code == 201
        token, secret = made.json()["token"], made.json()["secret"]
        listed = admin.get("/api/tokens")

        assert (token["name"], token["role"], token["valid"]) == ("grace", "operator", True)
        assert secret not in listed.text
        assert token in listed.json()["tokens"]
        with client_of(queue, "tokens", Authorization=f"Bearer {secret}") as grace:
            assert grace.get("/api/tasks").status_code == 200
            assert admin.delete(f"/api/tokens/{token['id']}").status_code == 204
            eventually(lambda: grace.get("/api/tasks").status_code == 401)
        assert admin.delete(f"/api/tokens/{token['id']}").status_code == 404
        assert secret not in admin.get("/api/audit").text


def test_a_token_that_would_never_be_valid_is_refused(queue: Face) -> None:
    """As the first one it would close the service to everybody."""
    with client_of(queue, "local") as client:
        refused = client.post("/api/tokens", {"name": "ada", "role": "admin", "expiresAt": "2001-02-03T04:05:06Z"})
        assert refused.status_code == 400
        assert "2001-02-03T04:05:06+00:00 would never be valid" in refused.json()["detail"]
        assert client.get("/api/tokens").json()["total"] == 0


@pytest.mark.parametrize("which", ["ada", "not-an-id", "%00"])
def test_only_an_id_names_a_token(queue: Face, which: str) -> None:
    with client_of(queue, "tokens", Authorization=f"Bearer {make_token(queue)}") as admin:
        assert admin.delete(f"/api/tokens/{which}").status_code == 404


def test_who_asks_at_once_shares_the_question_whether_a_token_exists(
    queue: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def counted() -> Any:
        nonlocal asked
        asked += 1
        return (yield from any_token())

    any_token = tokens.any_token
    monkeypatch.setattr(tokens, "any_token", counted)
    check = TokenCheck(Tokens(queue.plain))

    async def at_once() -> list[bool]:
        return await asyncio.gather(*(check.any_exists() for _ in range(20)))

    assert queue.run_coroutine(at_once()) == [False] * 20
    assert asked <= 2
    make_token(queue)
    check.forget()
    assert queue.run_coroutine(check.any_exists())


def test_a_token_made_or_revoked_here_holds_at_once(queue: Face) -> None:
    with client_of(queue, "local") as client:
        assert client.get("/api/types").status_code == 200
        made = client.post("/api/tokens", {"name": "me", "role": "admin"}).json()
        assert client.get("/api/types").status_code == 401
        admin = {"Authorization": f"Bearer {made['secret']}"}
        assert client.get("/api/types", headers=admin).status_code == 200
        assert client.delete(f"/api/tokens/{made['token']['id']}", headers=admin).status_code == 204
        assert client.get("/api/types", headers=admin).status_code == 401


def test_payloads_and_results_are_bounded(queue: Face) -> None:
    queue.plain.config = queue.plain.config.with_(max_payload_bytes=1000, max_result_bytes=1000)
    with client_of(queue, None) as client:
        refused = client.post("/api/tasks", {"type": "job", "payload": "x" * 1001})
        assert (refused.status_code, refused.json()["field"]) == (400, "payload")
        assert client.post("/api/tasks", {"type": "job", "payload": "x" * 900}).status_code == 201
        worker = client.post("/api/workers", {"workerId": "w", "types": ["job"]}).json()["instance"]
        (task,) = client.post(f"/api/workers/{worker}/claim", {"limit": 1}).json()["tasks"]
        ending = {"version": task["version"], "result": "x" * 1001}
        refused = client.post(f"/api/tasks/{task['id']}/complete", ending)
        assert (refused.status_code, refused.json()["field"]) == (400, "result")


@pytest.mark.parametrize("text", ["'; DROP TABLE tasks; --", '" OR 1=1 --', "%_\\", "{schema} :name %(name)s $1 ?"])
def test_whatever_is_sent_is_data(queue: Face, http: Client, text: str) -> None:
    other = http.create("other", {"note": "n"})["id"]
    made = http.create(text, {"note": text}, tags={text.replace("=", ""): text}, uniqueKey=text, concurrencyKey=text)[
        "id"
    ]
    for asked in ({"type": text}, {"search": text}, {"uniqueKey": text}, {"concurrencyKey": text}):
        assert [task["id"] for task in http.get("/api/tasks", params=asked).json()["tasks"]] == [made], asked
    assert http.post("/api/tasks/pause", {"type": text, "reason": text}).status_code == 200
    assert http.put(f"/api/schedules/{quote(text, safe='')}", {"type": text, "every": 60}).status_code == 200
    assert http.post("/api/tasks/bulk", {"action": "cancel", "filter": {"type": text}}).json()["changed"] == 1
    assert queue.read(other).state == "pending"


def test_a_request_for_two_hosts_is_refused(queue: Face) -> None:
    with client_of(queue, "local") as http:
        assert http.get("/api/tasks", headers=[("Host", "localhost"), ("Host", "evil.example")]).status_code == 400  # type: ignore[arg-type]
