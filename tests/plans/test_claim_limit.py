"""A claim takes exactly the best rows and never more than asked, whatever plan PostgreSQL chooses for it.

`LIMIT n FOR UPDATE SKIP LOCKED` in a subquery may be run once per row of an outer loop, and has then claimed every row
where it was asked for a few (PostgreSQL bug 15715).  So the plan is forced into every shape that the planner's switches
allow, with statistics that are fresh, stale and missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.plans.postgres import PostgresTable

SWITCHES = ("hashjoin", "mergejoin", "nestloop", "material", "sort", "hashagg")
SCANS = ("seqscan", "bitmapscan", "indexscan", "indexonlyscan", "tidscan")
LIMIT = 10
KNOWN = ["a", "b", "c"]

MIXED = """
INSERT INTO tasks (name, priority, scheduled_at, kwargs)
SELECT chr(97 + n % 4), n % 3, now() + (n * 7919 % 1000 - 900) * interval '1 minute', jsonb_build_object('n', n)
FROM generate_series(1, 1000) AS n
"""
BEST = """
SELECT kwargs ->> 'n' FROM tasks WHERE name = ANY (%s) AND due_at <= now()
ORDER BY priority DESC, due_at, seq LIMIT %s
"""
NAIVE = """
UPDATE tasks SET state = 'running', locked_until = now() WHERE id IN (
    SELECT id FROM tasks WHERE name = %s AND due_at <= now() LIMIT %s FOR UPDATE SKIP LOCKED
)
"""


@pytest.fixture(params=["fresh", "stale", "none"])
def table(request: pytest.FixtureRequest, new_postgres: Callable[[], PostgresTable]) -> PostgresTable:
    """A thousand rows of four types and three priorities, most of them due, seen by the planner or not."""
    table = new_postgres()
    if request.param == "stale":
        table.fill("finished", 20_000)
        table.analyze()
    table.execute(MIXED)
    if request.param == "fresh":
        table.analyze()
    return table


def test_every_plan_claims_exactly_the_best(table: PostgresTable) -> None:
    best = [n for (n,) in table.execute(BEST, (KNOWN, LIMIT))]
    wrong = {}
    for shape in every_shape(table):
        claimed = [task.kwargs["n"] for task in table.run(table.claim(KNOWN, LIMIT)).tasks]
        running = table.value("SELECT count(*) FROM tasks WHERE state = 'running'")
        if claimed != [int(n) for n in best] or running != LIMIT:
            wrong[shape] = (running, claimed)
    assert not wrong, (best, wrong)


def test_every_plan_passes_over_rows_in_use(table: PostgresTable, new_postgres: Callable[[], PostgresTable]) -> None:
    taken = lock_the_best(table, new_postgres(), LIMIT // 2)
    wrong = {}
    for shape in every_shape(table):
        claimed = [task.kwargs["n"] for task in table.run(table.claim(KNOWN, LIMIT)).tasks]
        running = table.value("SELECT count(*) FROM tasks WHERE state = 'running'")
        if not len(claimed) == running == LIMIT or taken & set(claimed):
            wrong[shape] = (running, claimed)
    assert not wrong, (taken, wrong)


def test_some_plan_lets_a_naive_claim_take_too_many(new_postgres: Callable[[], PostgresTable]) -> None:
    """The danger is real, and the shapes above reach it."""
    table = new_postgres()
    table.execute(MIXED)
    table.analyze()
    assert max(table.execute(NAIVE, (KNOWN[0], LIMIT)).rowcount for _ in every_shape(table)) > LIMIT


def every_shape(table: PostgresTable) -> Iterator[tuple[str, ...]]:
    """Each combination of the planner's switches, with the scans it likes and with none it could like."""
    for scans in ((), SCANS[:2], SCANS[2:]):
        for states in itertools.product((True, False), repeat=len(SWITCHES)):
            off = [switch for switch, state in zip(SWITCHES, states, strict=True) if not state]
            with table.undone():
                for switch in SWITCHES + SCANS:
                    table.execute(f"SET LOCAL enable_{switch} = {'off' if switch in (*off, *scans) else 'on'}")
                yield (*scans, *off)


def lock_the_best(table: PostgresTable, other: PostgresTable, count: int) -> set[Any]:
    """Let another session hold the best rows of a table until it is closed; returns which."""
    other.execute("BEGIN")
    other.execute(f"SET LOCAL search_path = {table.schema}")
    rows = other.execute(BEST + " FOR UPDATE", (KNOWN, count)).fetchall()
    return {int(n) for (n,) in rows}
