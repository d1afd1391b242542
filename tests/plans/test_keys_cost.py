"""Keys that are full cost others nothing: a million tasks of one, and a hundred thousand keys with ten tasks each.

(A fiftieth of that in the short form, and all of it in `make chaos`.)

Measured for a claim of tasks without a key, in one statement, and for a claim that looks at keys and finds a task of
another one: in pages on PostgreSQL and in steps of its machine on SQLite, against a table without the blocked tasks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasklib.core.insights.explain import MAX_AHEAD, KeySeen
from tasklib.storage.operations.reading.explain import gather_evidence
from tests.plans.crowd import DUE, SPREAD, names
from tests.plans.postgres import PostgresTable
from tests.plans.sqlite import SqliteTable

ONE_KEY, MANY_KEYS, EACH = 1_000_000, 100_000, 10
ON_SQLITE = 50
"""SQLite writes these rows ten times slower, so it gets a fiftieth of them."""
CLAIM = 100
ALLOWED = 2.0

# Each key has one running task, which holds its slot, and its tasks wait at the head: due first and of high priority.
WAITING = """
INSERT INTO tasks (name, priority, scheduled_at, concurrency_key)
SELECT 'type.0', 9, {past}, 'big' FROM {one_key}
UNION ALL
SELECT 'type.0', 9, {past}, 'key-' || (n % {keys}) FROM {many_keys}
"""
HOLDING = """
INSERT INTO tasks (name, state, locked_until, concurrency_key)
SELECT 'type.0', 'running', {future}, 'big'
UNION ALL
SELECT 'type.0', 'running', {future}, 'key-' || n FROM {held}
"""
SERIES = "(WITH RECURSIVE s (n) AS (SELECT {} UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s)"
OTHER = "INSERT INTO tasks (name, priority, scheduled_at, concurrency_key) SELECT 'type.0', 20, {past}, 'other'"


@pytest.mark.timeout(600)
@pytest.mark.backends("postgres-newest")
@pytest.mark.parametrize("part", [pytest.param(50, id="short"), pytest.param(1, id="long", marks=pytest.mark.chaos)])
def test_postgres_does_not_notice_full_keys(part: int, new_postgres: Callable[[], PostgresTable]) -> None:
    costs = []
    for blocked in (False, True):
        table = new_postgres()
        table.explain(lambda table=table: table.claim(names(1), CLAIM, plain=False))
        if blocked:
            # As a claim leaves it that has looked at every key and found it full: without a hint.
            table.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
            for text in (HOLDING, WAITING):
                table.execute(
                    text.format(
                        past="now() - interval '1 day'",
                        future="now() + interval '1 day'",
                        one_key=f"generate_series(1, {ONE_KEY // part}) AS n",
                        many_keys=f"generate_series(1, {MANY_KEYS * EACH // part}) AS n",
                        held=f"generate_series(0, {MANY_KEYS // part - 1}) AS n",
                        keys=MANY_KEYS // part,
                    )
                )
            table.execute("ALTER TABLE tasks ENABLE TRIGGER USER")
        table.fill("due", DUE + SPREAD)
        table.execute(OTHER.format(past="now() - interval '1 day'"))
        plain = [table.explain(lambda table=table: table.claim(names(1), CLAIM, plain=False)).buffers]
        keyed = [pages_of_a_keyed_claim(table)]
        table.analyze()
        plain.append(table.explain(lambda table=table: table.claim(names(1), CLAIM, plain=False)).buffers)
        keyed.append(pages_of_a_keyed_claim(table))
        costs.append((plain, keyed))
    (plain, keyed), (crowded_plain, crowded_keyed) = costs
    assert max(crowded_plain) <= ALLOWED * min(plain), costs
    assert max(crowded_keyed) <= ALLOWED * min(keyed), costs
    assert_explained(table)


def assert_explained(table: PostgresTable) -> None:
    """Why the last of a million waiting tasks does not run is told by looking at no more than are counted."""
    last = table.value(
        "SELECT id FROM tasks WHERE concurrency_key = 'big' AND due_at IS NOT NULL ORDER BY seq DESC LIMIT 1"
    )
    with table.undone():
        before = table.value(PAGES)
        seen = table.run(gather_evidence(last))
        pages = table.value(PAGES) - before
    assert (seen.ahead, seen.key) == (MAX_AHEAD + 1, KeySeen("big", 1, seen.key.holders if seen.key else ()))
    assert pages <= 3 * MAX_AHEAD


PAGES = """
SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0)::bigint
FROM pg_class AS c WHERE c.relnamespace = current_schema::regnamespace
"""


def pages_of_a_keyed_claim(table: PostgresTable) -> int:
    """The pages that all statements of a claim touch which takes tasks without a key, and the one of the other key."""
    with table.undone():
        before = table.value(PAGES)
        operation = table.claim(names(1), CLAIM, keyed=True)
        next(operation)  # its own BEGIN
        claimed = table.run(operation).tasks
        assert len(claimed) == CLAIM
        assert claimed[0].task("w").concurrency_key == "other"
        pages: int = table.value(PAGES) - before
        return pages


@pytest.mark.timeout(600)
def test_sqlite_does_not_notice_full_keys(new_sqlite: Callable[[], SqliteTable]) -> None:
    costs = []
    for blocked in (False, True):
        table = new_sqlite()
        if blocked:
            table.connection.execute("PRAGMA ignore_check_constraints = ON")
            for text in (HOLDING, WAITING):
                table.connection.execute(
                    text.format(
                        past="'2020-01-01 00:00:00.000000'",
                        future="'2099-01-01 00:00:00.000000'",
                        one_key=SERIES.format(1, ONE_KEY // ON_SQLITE),
                        many_keys=SERIES.format(1, MANY_KEYS * EACH // ON_SQLITE),
                        held=SERIES.format(0, MANY_KEYS // ON_SQLITE - 1),
                        keys=MANY_KEYS // ON_SQLITE,
                    )
                )
            table.connection.execute("PRAGMA ignore_check_constraints = OFF")
            table.connection.execute("DELETE FROM tasklib_hints")
        table.fill("due", DUE + SPREAD)
        table.connection.execute(OTHER.format(past="'2020-01-01 00:00:00.000000'"))
        plain = table.steps(lambda table=table: table.claim(names(1), CLAIM))
        costs.append((plain, table.steps_of_all(table.claim(names(1), CLAIM, keyed=True))))
    (plain, keyed), (crowded_plain, crowded_keyed) = costs
    assert crowded_plain <= ALLOWED * plain, costs
    assert crowded_keyed <= ALLOWED * keyed, costs
