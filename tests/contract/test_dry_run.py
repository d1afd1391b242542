"""A dry run counts exactly those tasks that acting then touches, whatever is asked for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tasklib.core.lifecycle import TERMINAL, Phase
from tests.fixtures.queues import Face, open_queue

pytestmark = pytest.mark.backends("sqlite-memory", "postgres-newest")
ENDED = {"state": ["failed", "completed"]}
FILTERS: list[tuple[str, dict[str, Any]]] = [
    *(
        (verb, filters)
        for verb in ("retry_many", "cancel_many", "delete_many")
        for filters in ({}, {"unique_key": "a"})
    ),
    *((verb, filters) for verb in ("retry_many", "delete_many") for filters in ({"state": "failed"}, ENDED)),
    ("retry_many", {"state": "retrying"}),
    ("cancel_many", {"state": ["pending", "retrying"]}),
]


@pytest.mark.parametrize("verb, filters", FILTERS, ids=str)
def test_a_dry_run_counts_what_acting_touches(database_url: str, verb: str, filters: dict[str, Any]) -> None:
    with open_queue(database_url, "blocking") as queue:
        fill(queue)
        act = getattr(queue, verb)
        counted = act(**filters, dry_run=True)
        assert act(**filters) == counted


def test_a_dry_run_of_a_redrive_passes_over_keys_that_are_taken(queue: Face) -> None:
    for key in ("a", "a", "b", None):
        queue.task_in(Phase.FAILED, unique_key=key)
    queue.enqueue("job", unique_key="b")
    [group] = queue.errors()
    assert group.count == 4
    assert queue.redrive(group, dry_run=True) == queue.redrive(group) == 2


def fill(queue: Face) -> None:
    """Tasks in every phase, many with a unique key that others had before them; a live one has it alone."""
    chance = random.Random(5)
    for phase in [*sorted(TERMINAL), *sorted(TERMINAL)]:
        queue.task_in(phase, unique_key=chance.choice([None, "a", "b", "c"]))
    queue.task_in(Phase.RETRYING, unique_key="a")
    queue.task_in(Phase.RETRYING)
    queue.enqueue("job", unique_key="b")
    queue.enqueue("other")
