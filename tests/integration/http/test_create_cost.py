"""What one task created over HTTP costs the database: one operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasklib.http.app import create_app
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client


def test_a_task_is_stored_by_one_operation(queue: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(queue, create_app(queue.plain, auth=None))
    client.create()
    sent: list[str] = []
    run = queue.plain.database.arun

    def arun(make: Callable[[], Any], **how: Any) -> Any:
        sent.append("operation")
        return run(make, **how)

    monkeypatch.setattr(queue.plain.database, "arun", arun)
    client.create()
    client.close()

    assert sent == ["operation"]
