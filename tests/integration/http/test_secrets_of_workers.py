"""A service without the code hides what the workers' code calls secret, also where tasks were stored by name alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from tasklib import TaskQueue
from tasklib.cli.main import main
from tasklib.core.codec import MASK
from tests.fixtures.queues import Face, open_queue
from tests.fixtures.waiting import eventually
from tests.integration.http.conftest import Client
from tests.programs.processes import working

pytestmark = pytest.mark.backends("sqlite-file", "postgres")
SECRET = "h1dden-by-annotation"


class Account(BaseModel):
    user: str
    pin: SecretStr


@pytest.fixture
def coded(queue: Face) -> Iterator[TaskQueue]:
    """The program of the worker."""
    with TaskQueue(queue.url, clock=queue.plain.clock) as coded:

        @coded.task(name="pay", max_retries=0)
        def pay(account: Account, note: str = "") -> str:
            return f"paid with {account.pin.get_secret_value()}"

        yield coded


def payload() -> dict[str, Any]:
    return {"account": {"user": "ada", "pin": SECRET}, "note": f"uses {SECRET}"}


def shown(http: Client, path: str) -> Any:
    answer = http.get(path)
    assert answer.status_code == 200
    assert SECRET not in answer.text
    return answer.json()


def test_secrets_that_only_workers_know_of_are_hidden(
    queue: Face, http: Client, coded: TaskQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    before = http.create("pay", payload())["id"]
    assert http.post("/api/schedules", {"name": "early", "type": "pay", "every": 3600, "payload": payload()}).is_success
    with working(coded):
        eventually(lambda: shown_if_hidden(http, before) == "completed")
        task = shown(http, f"/api/tasks/{before}")
        assert task["payload"] == {"account": {"user": "ada", "pin": MASK}, "note": f"uses {MASK}"}
        assert task["result"] == f"paid with {MASK}"
        shown(http, f"/api/tasks/{before}/explain")
        assert len(shown(http, "/api/tasks")["tasks"]) == 1
        assert shown(http, f"/api/tasks?search={SECRET}")["tasks"] == []
        assert shown(http, "/api/schedules")["schedules"][0]["payload"]["account"]["pin"] == MASK
        for command in (["show", before], ["list", "--json"], ["schedules", "--json"], ["explain", before]):
            assert main([*command, "--database-url", queue.url]) == 0
            assert SECRET not in capsys.readouterr().out

        later = {"runAfter": "2100-01-01T00:00:00Z"}
        marked = [
            http.create("pay", payload(), **later)["id"],
            http.post("/api/tasks/batch", {"tasks": [{"type": "pay", "payload": payload(), "options": later}]}).json()[
                "tasks"
            ][0]["id"],
            http.post(f"/api/tasks/{before}/resubmit", {"payload": task["payload"]}).json()["id"],
        ]
        assert http.post(
            "/api/tasks", {"type": "pay", "payload": payload(), "options": {"repeat": {"every": 3600}}}
        ).is_success
        assert coded.wait(marked[-1], 60).kwargs == payload()

    # What was stored while a worker told is marked: nobody who comes later has to be told.
    with open_queue(queue.url, "awaiting", queue.plain.clock) as face:  # type: ignore[arg-type]
        late = Client(face, face.plain.asgi(auth=None))
        for each in marked:
            assert shown(late, f"/api/tasks/{each}")["payload"]["account"] == {"user": "ada", "pin": MASK}
        repeated = [each for each in late.get("/api/schedules").json()["schedules"] if each["name"] != "early"]
        assert SECRET not in json.dumps(repeated)
        late.close()
    shown(http, f"/api/tasks/{before}")  # the service remembers what it was told


def shown_if_hidden(http: Client, task_id: str) -> str | None:
    """Where the task stands, once the service has asked the worker."""
    answer = http.get(f"/api/tasks/{task_id}")
    return None if SECRET in answer.text else str(answer.json()["status"])
