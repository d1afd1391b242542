"""Requests nobody thought of, made from the description: no server error, and no answer that it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from tasklib.core import lifecycle
from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import Role
from tests.fixtures.queues import open_queue
from tests.integration.http.serving import Server

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
REFUSALS = ["400", "403", "404", "409", "413"]
QUIET: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


@dataclass(frozen=True, slots=True)
class Form:
    """How long to try."""

    examples: int
    """Of each operation, in each mode."""
    following: int
    """Other operations after each."""


SHORT = pytest.param(Form(3, 1), id="short")
LONG = pytest.param(Form(50, 3), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(3600)])
OUT_OF_SEQUENCE = ("/api/tokens/{token_id}", "/api/session")
"""Who takes away its own token is refused everything from then on."""


@dataclass(slots=True)
class Place:
    """A service with tasks in every phase, a caller of one role, and what that caller was told so far."""

    operations: list[Any]
    headers: dict[str, str]
    told: dict[str, list[str]]
    """Values by the parameter of a path that takes them."""
    versions: dict[str, int] = field(default_factory=dict)
    successes: set[str] = field(default_factory=set)
    requests: dict[str, st.SearchStrategy[Any]] = field(default_factory=dict)
    """As described, by operation: to read a description takes longer than to send what it allows."""

    def requests_to(self, operation: Any) -> st.SearchStrategy[Any]:
        if operation.label not in self.requests:
            self.requests[operation.label] = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        return self.requests[operation.label]

    def fill(self, case: Any, choice: int) -> None:
        """Ask about something that the caller was told of; how much that is does not change what is drawn."""
        for name in set(case.path_parameters) & set(self.told):
            case.path_parameters[name] = self.told[name][choice % len(self.told[name])]
        if isinstance(case.body, dict):
            if "version" in case.body:
                case.body["version"] = self.versions.get(case.path_parameters.get("task_id"), 1)
            if case.path == "/api/workers":
                case.body["types"] = ["job"]
            if "waitSeconds" in case.body:
                case.body["waitSeconds"] = 0

    def learn(self, case: Any, response: Any) -> None:
        """Remember what can be asked about next."""
        if (
            response.status_code in (204, 304)
            or response.status_code >= 400
            or "application/json" not in str(response.headers.get("content-type"))
        ):
            return
        self.successes.add(case.operation.label)
        answer = response.json()
        for task in answer.get("tasks", [answer]):
            if "attempts" in task or "attempt" in task or task.get("status") == "pending":
                self.told["task_id"].append(task["id"])
                self.versions[task["id"]] = task.get("version", 1)
        for name, key in (("instance", "instance"), ("name", "schedule")):
            if key in answer:
                self.told.setdefault(name, []).append(answer[key])
        for group in answer.get("groups", []):
            self.told.setdefault("group_id", []).append(group["id"])


@contextmanager
def serving(database_url: str, folder: Path, role: Role) -> Iterator[Place]:
    """The service, until it is known that its caller was let in to the end."""
    known, secret = populate(database_url, role)
    headers = {"Authorization": f"Bearer {secret}"}
    with Server(database_url, folder) as server:
        yield Place(operations_of(server.url, headers), headers, known)
        assert httpx.get(f"{server.url}/api/tasks", headers=headers, timeout=180).status_code == 200
    assert "Traceback" not in server.log


def operations_of(url: str, headers: dict[str, str]) -> list[Any]:
    """What the service describes, but for the token, which is always sent, and events, which never end."""
    described: dict[str, Any] = httpx.get(f"{url}/openapi.json", headers=headers, timeout=180).json()
    del described["components"]["securitySchemes"], described["paths"]["/api/events"]
    for path in described["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=url, request_timeout=60)
    schema.config.checks.negative_data_rejection.expected_statuses = REFUSALS
    return [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]


def populate(url: str, role: Role) -> tuple[dict[str, list[str]], str]:
    """A task in every phase and two schedules, which the requests may name; and a token."""
    with open_queue(url) as queue:
        ids = [str(queue.task_in(phase).id) for phase in lifecycle.Phase if phase is not lifecycle.Phase.PENDING]
        ids.append(str(queue.task_in(lifecycle.Phase.PENDING).id))
        queue.add_schedule("nightly", task="job", cron="0 3 * * *")
        queue.add_schedule("often", task="job", every=1000)
        made = queue.do(lambda: tokens.create_token("ada", role))
    return {"task_id": ids, "name": ["nightly", "often"]}, made.secret


@pytest.mark.parametrize(
    "role, form",
    [
        pytest.param(Role.ADMIN, *SHORT.values, id="admin-short"),
        *(
            pytest.param(role, *LONG.values, id=f"{role}-long", marks=LONG.marks)
            for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
        ),
    ],
)
def test_every_operation_answers_as_described(newest_postgres_url: str, tmp_path: Path, role: Role, form: Form) -> None:
    """What one answers is what the next is asked about: created, claimed, completed, retried, cancelled, deleted."""
    successes = try_everything(newest_postgres_url, tmp_path, role, form)
    assert any("/{task_id}" in each for each in successes)
    assert ("POST /api/tasks" in successes) is (role is not Role.VIEWER)
    assert ("POST /api/workers" in successes) is (role is Role.ADMIN)


@pytest.mark.parametrize("form", [LONG])
def test_every_operation_answers_as_described_on_sqlite(sqlite_url: str, tmp_path: Path, form: Form) -> None:
    assert "POST /api/tasks" in try_everything(sqlite_url, tmp_path, Role.ADMIN, form)


def try_everything(database_url: str, folder: Path, role: Role, form: Form) -> set[str]:
    """Try all operations; those that succeeded at least once."""
    with serving(database_url, folder, role) as place:
        for operation in place.operations:
            try_operation(operation, place, form)
            if len(list(operation.body)) + len(list(operation.query)) > 0:
                try_wrong_requests(operation, place, form)
    return place.successes


def try_operation(operation: Any, place: Place, form: Form) -> None:
    """Requests as described, each followed by others about what it told."""
    in_sequence = [each for each in place.operations if each.path not in OUT_OF_SEQUENCE]

    @settings(**QUIET, max_examples=form.examples)
    @given(data=st.data())
    def answers(data: st.DataObject) -> None:
        others = [data.draw(st.sampled_from(in_sequence)) for _ in range(form.following)]
        for each in (operation, *others):
            case = data.draw(place.requests_to(each))
            choice = data.draw(st.integers(0, 10_000))
            # Now and then as it came, or nothing would be unknown.
            if choice % 4:
                place.fill(case, choice)
            place.learn(case, case.call_and_validate(checks=CHECKS, headers=place.headers))

    answers()


def try_wrong_requests(operation: Any, place: Place, form: Form) -> None:
    """Requests with something in them that is not as described."""

    @settings(**QUIET, max_examples=form.examples)
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def refuses(case: Any) -> None:
        assume(not any(is_never_sent(value) for value in (case.query or {}).values()))
        case.call_and_validate(checks=[*CHECKS, checks.negative_data_rejection], headers=place.headers)

    refuses()


def is_never_sent(value: Any) -> bool:
    """Whether a parameter of the query with this value leaves no trace in the address."""
    return value is None or (isinstance(value, list | dict) and all(is_never_sent(each) for each in value))
