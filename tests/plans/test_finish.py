"""Finishing a task in success touches no index: the row's new version lies in the same page, behind the old address."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tasklib.core.outcome import Completion
from tasklib.storage.operations.attempts import complete_tasks
from tests.fixtures.waiting import eventually
from tests.plans.crowd import DUE, SPREAD, names
from tests.plans.postgres import PostgresTable

BATCH, BATCHES = 100, 15
COUNTERS = """
SELECT relname, coalesce(pg_stat_get_xact_blocks_fetched(oid), 0) FROM pg_class
WHERE oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'tasks'::regclass)
UNION ALL SELECT 'updates', pg_stat_get_xact_tuples_updated('tasks'::regclass)
UNION ALL SELECT 'heap only', pg_stat_get_xact_tuples_hot_updated('tasks'::regclass)
"""


@pytest.fixture
def roomy(new_postgres: Callable[[], PostgresTable]) -> PostgresTable:
    """A table of due rows whose pages have room for two more versions of each."""
    table = new_postgres()
    table.execute("ALTER TABLE tasks SET (fillfactor = 25)")
    table.fill("due", DUE + SPREAD)
    return table


def test_with_room_in_the_page_every_finish_is_heap_only(roomy: PostgresTable) -> None:
    assert finish_all(roomy) == BATCHES * BATCH


def test_with_the_fill_factor_we_ship_nearly_every_finish_is(new_postgres: Callable[[], PostgresTable]) -> None:
    table = new_postgres()
    table.fill("due", 10 * DUE)
    # A row's first version makes room for its third one only when no snapshot on this server is older than the claim;
    # the tests beside this one hold some.
    eventually(lambda: finish(table)["heap only"] >= 0.7 * BATCH, timeout=100)


def test_a_finish_opens_the_primary_key_alone(roomy: PostgresTable) -> None:
    roomy.connection.prepare_threshold = 0
    finish(roomy)  # The first one plans, which looks at the size of every index.
    counted = finish(roomy)
    assert {name for name, number in counted.items() if number > 0} == {"tasks_pkey", "updates", "heap only"}


def finish_all(table: PostgresTable) -> int:
    """Claim and finish in batches, each committed; returns how many finishes touched no index."""
    heap_only = 0
    for _ in range(BATCHES):
        counted = finish(table)
        assert counted["updates"] == BATCH
        heap_only += counted["heap only"]
    return heap_only


def finish(table: PostgresTable) -> dict[str, int]:
    """Claim and finish one batch; returns what the finish did, as the session counts it."""
    done = claim(table)
    table.execute("BEGIN")
    before = dict(table.execute(COUNTERS).fetchall())
    assert table.run(complete_tasks(done)) == set()
    after = dict(table.execute(COUNTERS).fetchall())
    table.execute("COMMIT")
    return {name: after[name] - before[name] for name in after}


def claim(table: PostgresTable) -> list[Completion]:
    moment = time.monotonic()
    claimed = table.run(table.claim(names(1), BATCH)).tasks
    assert len(claimed) == BATCH
    return [Completion(task.id, task.version, '{"value": null}', moment, moment) for task in claimed]
