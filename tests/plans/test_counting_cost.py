"""What counts tasks by name works in proportion to the names, however many a producer invents."""

from __future__ import annotations

from collections.abc import Callable

from tasklib.storage.statement import Statement
from tests.plans.postgres import Plan, PostgresTable
from tests.plans.sqlite import SqliteTable

COUNTING = ("measure_size", "count_by_state", "count_quickly", "count_due", "find_oldest_waiting")
ROWS = 10_000
FEW, MANY = 1_000, 10_000
GROWTH = 11.5
"""Ten times the names; the rest is what happens once."""
INVENTED = (
    "WITH RECURSIVE series AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM series WHERE n < {rows})"
    " INSERT INTO tasks (name) SELECT 'type ' || (n % {names}) FROM series"
)


def test_postgres_touches_pages_and_rows_in_proportion(new_postgres: Callable[[], PostgresTable]) -> None:
    few, many = new_postgres(), new_postgres()
    for table, names in ((few, FEW), (many, MANY)):
        table.execute(INVENTED.format(rows=ROWS, names=names))
        table.vacuum()
        table.analyze()
    for name in COUNTING:
        less, more = few.explain(Statement(name)), many.explain(Statement(name))
        assert more.buffers < GROWTH * less.buffers, name
        assert rows_of(more) < GROWTH * rows_of(less), name


def test_sqlite_takes_steps_in_proportion(new_sqlite: Callable[[], SqliteTable]) -> None:
    few, many = new_sqlite(), new_sqlite()
    for table, names in ((few, FEW), (many, MANY)):
        table.connection.execute("PRAGMA ignore_check_constraints = ON")
        table.connection.execute(INVENTED.format(rows=ROWS, names=names))
    for name in COUNTING:
        assert many.steps(Statement(name)) < GROWTH * few.steps(Statement(name)), name


def rows_of(plan: Plan) -> int:
    """Rows that the nodes of a plan handed on."""
    return sum(int(node["Actual Rows"] * node["Actual Loops"]) for node in plan.nodes)
