"""Members of a group are looked up where their ids are, however many there are and however old the plan."""

from __future__ import annotations

from collections.abc import Callable

from tasklib.storage.operations.workflows.groups import FIRST
from tasklib.storage.statement import Statement
from tests.plans.crowd import KINDS, due_ids
from tests.plans.postgres import PostgresTable
from tests.plans.sqlite import SqliteTable

MEMBERS, OTHERS, PAGE = 3_000, 20_000, 100
GROUP = f"{KINDS['due'].prefix}000000c0ffee"
OWNER = "01900000-0000-7000-9000-000000000001"
MAKE = f"UPDATE tasks SET group_id = '{GROUP}', marks = 1 WHERE id IN ('{{ids}}')"
MAKE_GROUP = f"INSERT INTO tasklib_groups (id, task_id, key, kind) VALUES ('{GROUP}', '{OWNER}', 'all', 'map')"
PAGES_PER_ROW, STEPS_PER_ROW = 1, 30


def lookups() -> dict[str, tuple[Statement, int]]:
    """Statements about a group, with how many members each needs."""
    middle = due_ids(1, start=MEMBERS // 2)[0]
    return {
        "the first page": (Statement("find_members", {"id": GROUP, "after": FIRST, "limit": PAGE}), PAGE),
        "a page in the middle": (Statement("find_members", {"id": GROUP, "after": middle, "limit": PAGE}), PAGE),
        "after the last": (Statement("find_members", {"id": GROUP, "after": due_ids(1, MEMBERS)[0], "limit": PAGE}), 1),
        "the oldest child": (Statement("find_oldest_child", {"id": OWNER}), 1),
        "a group without members": (Statement("look_at_members", {"id": OWNER}), 1),
        "groups to copy": (Statement("export_groups", {"after": FIRST, "limit": PAGE}), MEMBERS),
        "one that failed": (Statement("find_failed_member", {"id": GROUP}), MEMBERS),
    }


def make_members() -> str:
    """A statement that makes the due tasks members of the group."""
    return MAKE.format(ids="', '".join(due_ids(MEMBERS)))


def test_postgres_reads_the_pages_of_members(new_postgres: Callable[[], PostgresTable]) -> None:
    table = new_postgres()
    for statement, _ in lookups().values():
        table.explain(statement)
    table.execute(MAKE_GROUP)
    for kind, rows in (("finished", OTHERS), ("due", MEMBERS), ("suspended", OTHERS)):
        table.fill(kind, rows)
    table.execute(make_members())
    too_much = {}
    for state, reach in {"never analysed": table.forget_statistics, "analysed": table.analyze}.items():
        reach()
        for name, (statement, members) in lookups().items():
            table.explain(statement)
            plan = table.explain(statement)
            if plan.buffers > PAGES_PER_ROW * (members + 10) or plan.whole_scans:
                too_much[f"{name}, {state}"] = (plan.buffers, plan.whole_scans)
    assert not too_much


def test_sqlite_visits_the_rows_of_members(new_sqlite: Callable[[], SqliteTable]) -> None:
    table = new_sqlite()
    for kind, rows in (("finished", OTHERS), ("due", MEMBERS), ("suspended", OTHERS)):
        table.fill(kind, rows)
    table.connection.execute(MAKE_GROUP)
    table.connection.execute(make_members())
    too_much = {}
    for state, reach in {"never analysed": lambda: None, "analysed": table.analyze}.items():
        reach()
        for name, (statement, members) in lookups().items():
            steps = table.steps(statement)
            if steps > STEPS_PER_ROW * (members + 10):
                too_much[f"{name}, {state}"] = steps
    assert not too_much
