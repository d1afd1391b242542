"""One claim costs the same whatever else the table holds: finished rows, future ones, those of other types, workflows
that wait.

Measured in pages touched on PostgreSQL and in steps of its machine on SQLite, against a table that holds the due rows
only: with finished rows, and with all kinds together, 20,000 of each; in `make chaos` with a million of each, and with
a million of each kind alone, which says which one it was.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plans.crowd import DUE, KINDS, SPREAD, TYPES, names
from tests.plans.postgres import PostgresTable
from tests.plans.sqlite import SqliteTable

MILLION = 1_000_000
CLAIM = 100
ALLOWED = 2.0
OTHERS = [kind for kind in KINDS if kind not in ("due", "finished")]
SIZES = [
    pytest.param(MILLION // 50, id="short"),
    pytest.param(MILLION, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
]

Costs = dict[tuple[str, int], int]
"""What a claim cost, by the state of the statistics and the number of types the worker knows (negative: for the larger
statement, which also keeps pauses, limits and keys)."""


@pytest.mark.full_matrix  # plans differ from version to version
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("rows", SIZES)
def test_postgres_does_not_notice_finished_nor_all_together(
    rows: int, new_postgres: Callable[[], PostgresTable]
) -> None:
    only_due, crowded, history = new_postgres(), new_postgres(), history_of(new_postgres())
    plan_while_empty(only_due, crowded)
    only_due.fill("due", DUE + SPREAD)
    crowded.fill("finished", rows)
    crowded.fill("due", DUE + SPREAD)
    baseline = postgres_costs(only_due, history)
    assert_independent(postgres_costs(crowded, history), baseline)
    for kind in OTHERS:
        crowded.fill(kind, rows)
    assert_independent(postgres_costs(crowded, history), baseline)


@pytest.mark.backends("postgres-newest")
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("rows", SIZES[1:])
def test_postgres_does_not_notice(kind: str, rows: int, new_postgres: Callable[[], PostgresTable]) -> None:
    only_due, crowded, history = new_postgres(), new_postgres(), history_of(new_postgres())
    plan_while_empty(only_due, crowded)
    only_due.fill("due", DUE + SPREAD)
    for filling in (kind, "due"):
        crowded.fill(filling, rows if filling == kind else DUE + SPREAD)
    assert_independent(postgres_costs(crowded, history), postgres_costs(only_due, history))


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("rows", SIZES[1:])
def test_sqlite_does_not_notice(kind: str, rows: int, new_sqlite: Callable[[], SqliteTable]) -> None:
    only_due, crowded = new_sqlite(), new_sqlite()
    only_due.fill("due", DUE + SPREAD)
    crowded.fill(kind, rows)
    crowded.fill("due", DUE + SPREAD)
    assert_independent(sqlite_costs(crowded), sqlite_costs(only_due))


@pytest.mark.parametrize("rows", SIZES)
def test_sqlite_does_not_notice_finished_nor_all_together(rows: int, new_sqlite: Callable[[], SqliteTable]) -> None:
    only_due, crowded = new_sqlite(), new_sqlite()
    only_due.fill("due", DUE + SPREAD)
    crowded.fill("finished", rows)
    crowded.analyze()
    crowded.fill("due", DUE + SPREAD)
    baseline = sqlite_costs(only_due)
    assert_independent(sqlite_costs(crowded), baseline)
    for kind in OTHERS:
        crowded.fill(kind, rows)
    assert_independent(sqlite_costs(crowded), baseline)


def plan_while_empty(*tables: PostgresTable) -> None:
    """A worker started on a new system plans its statements before there is anything to see."""
    for table in tables:
        for plain in (True, False):
            table.explain(lambda table=table, plain=plain: table.claim(names(1), CLAIM, plain=plain))


def history_of(table: PostgresTable) -> PostgresTable:
    """A table in which everything was finished when somebody last looked."""
    table.fill("finished", 20_000)
    table.analyze()
    return table


def postgres_costs(table: PostgresTable, history: PostgresTable) -> Costs:
    """What a claim costs in every state of knowledge the planner may be in, with pages not yet and just vacuumed."""
    costs: Costs = {}
    states: dict[str, Callable[[], None]] = {
        "planned before it was filled": lambda: None,
        "never analysed": table.forget_statistics,
        "analysed when all were finished": lambda: table.take_statistics(history),
        "analysed": table.analyze,
        "vacuumed": table.vacuum,
        "vacuumed, never analysed": table.forget_statistics,
        "vacuumed, analysed when all were finished": lambda: table.take_statistics(history),
    }
    for state, reach in states.items():
        reach()
        for types in (1, TYPES):
            plan = table.explain(lambda types=types: table.claim(names(types), CLAIM))
            costs[state, types] = plan.buffers
            plan = table.explain(lambda types=types: table.claim(names(types), CLAIM, plain=False))
            costs[state, -types] = plan.buffers
    assert_claims(table)
    return costs


def sqlite_costs(table: SqliteTable) -> Costs:
    """What a claim costs with the statistics there are, with none, and with new ones."""
    costs: Costs = {}
    states: dict[str, Callable[[], None]] = {
        "as it was": lambda: None,
        "analysed": table.analyze,
        "never analysed": table.forget_statistics,
    }
    for state, reach in states.items():
        reach()
        for types in (1, TYPES):
            costs[state, types] = table.steps(lambda types=types: table.claim(names(types), CLAIM))
    assert_claims(table)
    return costs


def assert_claims(table: PostgresTable | SqliteTable) -> None:
    """What was measured did what it should."""
    with table.undone():
        for types in (1, TYPES):
            assert len(table.run(table.claim(names(types), CLAIM)).tasks) == CLAIM


def assert_independent(crowded: Costs, only_due: Costs) -> None:
    """Each cost is within bounds of the cheapest that the due rows alone gave in a table vacuumed as much."""
    too_much = {}
    for (state, types), cost in crowded.items():
        comparable = [
            other
            for (its_state, its_types), other in only_due.items()
            if its_types == types and its_state.startswith("vacuumed") == state.startswith("vacuumed")
        ]
        if cost > ALLOWED * min(comparable):
            too_much[f"{state}, {types} types"] = f"{cost} against {min(comparable)}"
    assert not too_much, (too_much, crowded, only_due)
