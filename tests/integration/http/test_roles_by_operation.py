"""A role is checked by what a request does, not by the route it comes in on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import Role
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")

Enter = Callable[..., Client]


@pytest.fixture
def enter(queue: Face) -> Iterator[Enter]:
    """Makes a client with a token of its own."""
    clients: list[Client] = []
    apps: list[Any] = []

    def entered(role: str, name: str = "ada", **settings: Any) -> Client:
        if settings:
            queue.plain.config = queue.plain.config.with_(**settings)
        if not apps:
            apps.append(queue.plain.asgi(auth="tokens"))
        made = queue.do(lambda: tokens.create_token(name, Role(role)))
        clients.append(Client(queue, apps[0], Authorization=f"Bearer {made.secret}"))
        return clients[-1]

    yield entered
    for client in clients:
        client.close()


BEYOND = [
    {"repeat": {"every": 1, "name": "nightly"}},
    {"repeat": {"every": 1}},
    {"uniqueKey": "k", "onConflict": "replace"},
    {"uniqueKey": "schedule:nightly"},
]


@pytest.mark.parametrize("options", BEYOND, ids=lambda options: "-".join(map(str, options.values())))
def test_a_producer_adds_tasks_and_changes_nothing_that_is_there(
    queue: Face, enter: Enter, options: dict[str, Any]
) -> None:
    queue.add_schedule("nightly", task="job", cron="0 3 * * *", kwargs={"mine": True}, overlap="skip")
    queue.enqueue("job", {"mine": True}, unique_key="k")
    before = [queue.sql(f"SELECT * FROM {table}") for table in ("tasks", "tasklib_schedules")]
    producer = enter("producer")
    body = {"type": "job", "payload": {"mine": False}, "options": options}

    for path, sent in (("/api/tasks", body), ("/tasks", body), ("/api/tasks/batch", {"tasks": [body]})):
        for headers in ({}, {"Idempotency-Key": "once"}, {"Content-Type": "application/json; charset=utf-8"}):
            assert producer.post(path, sent, headers=headers).status_code == 403
    assert [queue.sql(f"SELECT * FROM {table}") for table in ("tasks", "tasklib_schedules")] == before
    assert producer.post("/api/tasks", {**body, "options": {"uniqueKey": "k"}}).status_code == 409
    assert enter("operator").post("/api/tasks", body).is_success


@pytest.mark.parametrize("role", [*Role, "nobody"])
def test_the_short_way_to_create_a_task_asks_what_the_route_asks(enter: Enter, role: str) -> None:
    client = enter("admin" if role == "nobody" else role)
    who = {"Authorization": "Bearer tl_unknown"} if role == "nobody" else {}

    short = client.post("/api/tasks", {"type": "job"}, headers=who)
    by_route = client.post("/api/tasks", {"type": "job"}, headers={**who, "Idempotency-Key": "k"})

    assert short.status_code == by_route.status_code
    assert short.is_success is (role in ("producer", "operator", "admin"))
    if not short.is_success:
        assert short.json() == by_route.json()


def test_rates_and_idempotency_keys_belong_to_the_token_and_not_to_its_name(enter: Enter) -> None:
    one, two = enter("producer", submit_rate_limit=1.0), enter("producer")
    key = {"Idempotency-Key": "k"}

    made = [each.post("/api/tasks", {"type": f"job-{n}"}, headers=key) for n, each in enumerate((one, two))]
    assert [each.status_code for each in made] == [201, 201]
    assert made[0].json()["id"] != made[1].json()["id"]
    refused = one.post("/api/tasks", {"type": "job"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_running_a_schedule_now_is_a_submission(queue: Face, enter: Enter) -> None:
    queue.add_schedule("nightly", task="job", cron="0 3 * * *")
    operator = enter("operator", submit_rate_limit=1.0)

    assert operator.post("/api/schedules/nightly/run").status_code == 201
    assert operator.post("/api/schedules/nightly/run").status_code == 429


def test_who_may_not_read_all_learns_of_another_s_unique_key_only_that_it_is_taken(queue: Face, enter: Enter) -> None:
    """By every way of creating; its own task is found again, and whoever may read everything finds any."""
    mallory, ada, operator = enter("producer", "mallory"), enter("producer"), enter("operator")
    key = {"uniqueKey": "order-7"}
    of_ada = ada.create("job", {"amount": 1}, **key)["id"]
    of_python = str(queue.enqueue("job", {"amount": 2}, unique_key="python").id)

    def ways(caller: Client, options: dict[str, Any], once: str) -> list[Any]:
        body = {"type": "job", "payload": {"guessed": True}, "options": options}
        many = {"tasks": [{"type": "job"}, body]}
        return [
            caller.post(path, sent, headers=headers)
            for path, sent in (("/api/tasks", body), ("/tasks", body), ("/api/tasks/batch", many))
            for headers in (
                {},
                {"Idempotency-Key": f"{once}{path}"},
                {"Content-Type": "application/json; charset=utf-8"},
            )
        ]

    for options in (key, {**key, "onConflict": "raise"}, {"uniqueKey": "python"}):
        for answered in ways(mallory, options, str(options).replace(" ", "")):
            assert (answered.status_code, answered.json()["field"]) == (409, "options.uniqueKey")
            assert "already holds the unique key" in answered.json()["detail"]
            assert of_ada not in answered.text + str(answered.headers)
            assert of_python not in answered.text + str(answered.headers)
    assert queue.count() == 2  # of the batches too nothing was stored

    for caller in (ada, operator):
        for answered in ways(caller, key, "mine"):
            last = answered.json().get("tasks", [answered.json()])[-1]
            assert (answered.is_success, last["id"]) == (True, of_ada)
    assert operator.post("/api/tasks", {"type": "job", "options": {"uniqueKey": "python"}}).json()["id"] == of_python
    assert ada.get(f"/api/tasks/{of_ada}").json()["payload"] == {"amount": 1}
