"""errors and redrive: what went wrong, and starting it anew."""

from __future__ import annotations

import pytest

from tasklib import TaskQueue
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file")


def test_failures_are_shown_in_groups_and_started_anew(tasklib: CommandLine, queue: TaskQueue) -> None:
    assert "No task has failed" in tasklib.ok("errors")
    for divisor in (0, 0, 1):
        queue.enqueue("divide", {"a": 1, "b": divisor}, max_attempts=1)
    queue.process_batch()

    [group] = tasklib.json("errors")["errors"]
    assert (group["count"], group["name"]) == (2, "divide")
    assert group["fingerprint"].startswith("ZeroDivisionError in ")
    assert group["id"] in tasklib.ok("errors")

    assert "Would retry 2 tasks" in tasklib.ok("redrive", group["id"], "--dry-run")
    assert "Retried 2 tasks, 0.5 per second" in tasklib.ok("redrive", group["id"], "--rate", "0.5")
    assert queue.count(state="pending") == 2
    assert tasklib.json("errors")["errors"] == []
