"""Finished tasks go when their time is up: by state, by name, in small steps, by one worker at a time."""

from __future__ import annotations

import pytest

from tasklib.core.lifecycle import Phase
from tasklib.core.retention import parse_retention
from tasklib.storage.operations import retention
from tests.fixtures.queues import Face

DAY = 86_400
ALL = (Phase.BURIED, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.RETRYING, Phase.RUNNING, Phase.PENDING)


def sweep(queue: Face, rules: str) -> int:
    """Go through the whole table once; returns how many were removed."""
    deleted, more = 0, True
    while more:
        swept = queue.do(lambda: retention.sweep_tasks(parse_retention(rules), 60))
        assert swept is not None
        deleted, more = deleted + swept.deleted, swept.more
    return deleted


def states(queue: Face) -> set[str]:
    return {str(task.state) for task in queue.list()}


def test_each_state_has_its_time_and_what_has_not_ended_stays(queue: Face) -> None:
    for phase in ALL:
        queue.task_in(phase)
    rules = "completed=1d, failed=2d, cancelled=3d"
    queue.advance(DAY - 60)
    assert sweep(queue, rules) == 0
    queue.advance(120)
    assert (sweep(queue, rules), "completed" in states(queue)) == (1, False)
    queue.advance(DAY)
    assert sweep(queue, rules) == 1
    queue.advance(10 * DAY)
    assert sweep(queue, rules) == 1
    assert states(queue) == {"buried", "failed", "running", "pending"}


def test_a_rule_for_a_name_comes_before_the_one_for_all(queue: Face) -> None:
    queue.task_in(Phase.COMPLETED)
    [task] = queue.list()
    queue.advance(2 * DAY)
    assert sweep(queue, f"completed=1d, {task.name}:completed=3d") == 0
    assert sweep(queue, f"completed=1d, {task.name}:completed=forever") == 0
    assert sweep(queue, f"completed=9d, {task.name}:completed=1d") == 1


def test_a_large_table_is_gone_through_page_by_page(queue: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGE", 3)
    for _ in range(8):
        queue.task_in(Phase.COMPLETED)
    queue.advance(2 * DAY)
    queue.enqueue("job")
    first = queue.do(lambda: retention.sweep_tasks(parse_retention("completed=1d"), 60))
    assert (first.deleted, first.more) == (3, True)
    assert sweep(queue, "completed=1d") == 5
    assert queue.count() == 1


def test_while_one_has_the_turn_nobody_else_does_it(queue: Face) -> None:
    queue.task_in(Phase.COMPLETED)
    queue.advance(2 * DAY)
    chore = {"name": "retention", "seconds": 60.0}
    assert queue.do(lambda: take(chore))
    assert queue.do(lambda: retention.sweep_tasks(parse_retention("completed=1d"), 60)) is None
    queue.advance(61)
    assert sweep(queue, "completed=1d") == 1


def take(chore: dict) -> object:
    return (yield retention.Statement("take_chore", chore))
