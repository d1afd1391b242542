"""Every statement that touches tasks looks up the few it means, however large the table and however old the plan.

Held on PostgreSQL for plans made while the table was new or emptied, with no, stale and fresh statistics; on SQLite
with and without statistics.  A statement that reads the whole table is named in WHOLE_TABLE, with the reason.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib.core.codec import dumps
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Completion
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import LogLine, NewTask, TaskBatch, first_of_many
from tasklib.core.texts.short_id import readings
from tasklib.storage.operations import attempts, claims, tasks, workers
from tasklib.storage.operations.claims import Position
from tasklib.storage.operations.limits import pauses
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.workflows import steps
from tasklib.storage.operations.workflows.groups import FIRST
from tasklib.storage.statement import Operation, Statement, load_sql
from tests.plans.crowd import DUE, SPREAD, due_ids, names
from tests.plans.postgres import PostgresTable
from tests.plans.sqlite import SqliteTable

ROWS = 40_000
BATCH = 100
WALKED = 3_000
"""Positions, of which a page of the table holds a few."""
WHOLE_TABLE = {
    "count_tasks": "counts what a filter matches",
    "count_retries": "counts what a filter matches",
    "count_live": "counts what a filter matches",
    "count_deletes": "counts what a filter matches",
    "count_by_state": "counts everything",
    "find_stale_any": "looks for what nobody has noted, when a person asks for it",
    "find_orphans": "looks at tens of thousands of insertions at a time, rarely",
    "count_workflows": "counts what is suspended in its index",
    "count_quickly": "counts what waits and what failed in their indexes, and what was inserted lately",
    "fold_totals": "counts what was inserted since the last time, once",
    "look_at_waiting": "counts what is due, when a person asks what is wrong",
    "look_for_orphans": "looks for what nobody holds, when a person asks what is wrong",
    "look_at_objects": "looks at the catalog",
    "look_at_parts": "looks at the catalog",
    "fail_unreadable_keys": "reads the due tasks of keys that are no text, once",
    "look_at_server": "looks at the catalog",
    "import_tasks": "inserts",
    "insert_task_audited": "inserts as insert_task does",
    "insert_tasks_audited": "inserts as insert_tasks does",
    "insert_batch_again": "inserts as insert_batch does",
    "list_retrying": "looks through the index of failures",
    "count_errors_by_hour": "looks through the index of what failed for good",
    "find_waiting": "looks through the index of what waits, when nothing that waits is near",
    "find_oldest_waiting": "looks at the head of each name and priority that waits",
    "list_errors": "counts what failed for good, by an index of those alone",
    "count_due": "counts what is due and what runs in their indexes, when somebody asks how many workers it takes",
    "list_ended_workers": "reads workers that have ended, of which `tasks` is a column",
    "note_ended_workers": "writes workers that have ended, of which `tasks` is a column",
    "look_for_alembic": "looks at the catalog",
}

Make = Callable[[], Operation[Any]] | Statement


def statements(instance: UUID, held: list[tuple[str, int]], waiting: list[str]) -> dict[str, Make]:
    """Every statement with the parameters of an ordinary moment; those of a batch take a hundred rows."""
    clock = time.monotonic()
    ids = [UUID(task_id) for task_id in waiting]
    everything = lists.filter_params(TaskFilter()) | {"width": 1000}
    completed = lists.filter_params(TaskFilter(states=("completed",)))
    completed |= {"width": 1000, "limit": BATCH, "offset": 0}
    day = {"since": time.time() - 86_400, "until": time.time(), "clock": time.time(), "by": "worker", "name": None}
    ran = {**day, "before": 4 * ROWS, "floor": 4 * ROWS - WALKED}
    keys = [{"id": str(task_id), "name": "type.0", "unique_key": f"key-{task_id}"} for task_id in ids]
    new = [
        NewTask(id=UUID(int=n), name="type.0", kwargs={}, max_retries=3, unique_key=f"new-{n}") for n in range(BATCH)
    ]
    first = NewTask(id=first_of_many(uuid4()), name="type.0", kwargs=None, max_retries=3)
    lost = dumps([{"id": task_id, "version": version} for task_id, version in held])
    recorded = dumps([{"id": one[0], "version": one[1], "state": "completed", "outcome": None} for one in held])
    recorded_steps = [
        {"task_id": task_id, "version": version, "key": "a", "number": 1, "kind": "step", "state": "done"}
        | {"tries": 0, "started_ago": 0.0, "ended": True}
        for task_id, version in held
    ]
    return {
        "complete_tasks": lambda: attempts.complete_tasks(
            [Completion(task_id, version, '{"value": 1}', clock, clock) for task_id, version in held]
        ),
        "complete_members": lambda: attempts.complete_tasks(
            [Completion(task_id, version, '{"value": 1}', clock, clock) for task_id, version in held], members=True
        ),
        "end_attempts": lambda: attempts.end_attempts(
            [Ending.retry_later(task_id, version, delay=5.0, error="no") for task_id, version in held]
        ),
        "renew_leases": lambda: attempts.renew_leases(held, lease_seconds=60.0),
        "renew_held": lambda: workers.renew_held(instance, 60.0),
        "find_cancel_requests": lambda: attempts.find_cancel_requests(held),
        "report_progress": lambda: attempts.report_progress([(*one, 0.5, "half") for one in held]),
        "append_log": lambda: attempts.append_log({one: [LogLine(1, 0.1, "INFO", "line")] for one in held}),
        "list_held": lambda: workers.list_held(instance),
        "unmark_copied": Statement("unmark_copied", {"ids": dumps(waiting)}),
        "find_instance_of": Statement("find_instance_of", {"id": waiting[0]}),
        "count_held_of": Statement("count_held_of", {"name": "type.0"}),
        "list_timed": Statement("list_timed"),
        "find_recorded": Statement("find_recorded", {"batch": recorded}),
        "list_running": Statement("list_running", {"name": "", "limit": 10}),
        "list_workers": lambda: workers.list_workers(),
        "find_held_by": Statement("find_held_by", {"dead": dumps([str(instance)])}),
        "look_at_workers": Statement("look_at_workers"),
        "find_expired_held": Statement("find_expired_held"),
        "lock_lost": Statement("lock_lost", {"lost": lost}),
        "insert_task": lambda: tasks.submit_tasks([replace(new[-1], unique_key=None)]),
        "insert_tasks": lambda: tasks.submit_tasks(new[:1]),
        "insert_batch": lambda: tasks.submit_batch(TaskBatch(first, dumps([{}] * BATCH), BATCH)),
        "find_live_keys": Statement("find_live_keys", {"keys": dumps(keys)}),
        "expire_holder": Statement("expire_holder", {"id": waiting[0]}),
        "replace_task": Statement("replace_task", {"batch": dumps([tasks.columns_of(new[0])])}),
        "get_task": lambda: tasks.get_task(ids[0]),
        "find_ids": lambda: tasks.find_ids(readings(f"{waiting[0][:35]}..{waiting[0][-1]}")[0]),
        "watch_task": lambda: tasks.watch_task(ids[0]),
        "waiting_names": lambda: tasks.waiting_names(),
        "record_steps": lambda: steps.try_record_steps(recorded_steps),
        "record_more_steps": lambda: steps.try_record_steps(recorded_steps, marked=True),
        "lock_tasks": Statement("lock_tasks", {"ids": dumps(waiting)}),
        "lock_attempt": Statement("lock_attempt", {"id": waiting[0], "version": 1}),
        "wake_tasks": lambda: steps.wake_tasks(waiting),
        "list_parked": Statement("list_parked", {"limit": BATCH}),
        "wake_parked": Statement("wake_parked", {"batch": dumps([{"name": "type.0", "code": "x"}])}),
        "wake_for_budget": Statement("wake_for_budget", {"name": "calls"}),
        "insert_members": Statement("insert_members", {"batch": "[]", "group_id": str(UUID(int=0))}),
        "insert_group": Statement(
            "insert_group",
            {"id": str(uuid4()), "task_id": waiting[0], "key": "k", "kind": "map", "total": 0, "sealed": False}
            | {"max_failures": None},
        ),
        "find_members": Statement("find_members", {"id": str(UUID(int=0)), "after": FIRST, "limit": BATCH}),
        "lock_holder": Statement("lock_holder", {"ids": dumps(waiting[:2])}),
        "find_circle": Statement("find_circle", {"id": waiting[0], "holder": waiting[-1]}),
        "follow_task": Statement("follow_task", {"id": waiting[0], "group_id": str(uuid4())}),
        "find_followed": Statement("find_followed", {"id": str(UUID(int=0))}),
        "find_failed_member": Statement("find_failed_member", {"id": str(UUID(int=0))}),
        "list_before": Statement("list_before", {"id": str(UUID(int=0))}),
        "find_parent": Statement("find_parent", {"id": waiting[0]}),
        "delay_tasks": Statement("delay_tasks", {"batch": dumps([{"id": each, "delay": 1.5} for each in waiting])}),
        "find_oldest_child": Statement("find_oldest_child", {"id": str(UUID(int=0))}),
        "find_arguments": Statement("find_arguments", {"id": str(UUID(int=0))}),
        "release_task": Statement("release_task", {"id": str(UUID(int=0)), "kwargs": None}),
        "skip_task": Statement("skip_task", {"id": str(UUID(int=0)), "error": "E"}),
        "restart_tasks": Statement(
            "restart_tasks", {"batch": dumps([{"id": each, "version": 1, "kwargs": {}} for each in waiting])}
        ),
        "stop_groups_of": Statement("stop_groups_of"),
        "clear_group": Statement("clear_group", {"id": str(UUID(int=0)), "kind": "map"}),
        "get_kwargs": Statement("get_kwargs", {"id": waiting[0]}),
        "look_at_members": Statement("look_at_members", {"id": str(UUID(int=0))}),
        "lock_with_members": Statement("lock_with_members", {"id": str(UUID(int=0))}),
        "list_questions": Statement("list_questions", {"limit": BATCH}),
        "retry_tasks": Statement(
            "retry_tasks", {"ids": dumps(waiting), "states": dumps(["failed"]), "from_scratch": False}
        ),
        "find_skipped": Statement("find_skipped", {"ids": dumps(waiting)}),
        "wait_again": Statement("wait_again", {"ids": dumps(waiting)}),
        "look_at_undos": Statement("look_at_undos", {"id": waiting[0]}),
        "find_undone": Statement("find_undone", {"ids": dumps(waiting)}),
        "cancel_tasks": Statement("cancel_tasks", {"ids": dumps(waiting)}),
        "set_priorities": Statement("set_priorities", {"ids": dumps(waiting), "priority": 0}),
        "delete_tasks": Statement("delete_tasks", {"ids": dumps(waiting)}),
        "redrive_tasks": Statement(
            "redrive_tasks", {"batch": dumps([{"id": task_id, "delay": 1.0} for task_id in waiting])}
        ),
        "count_ahead": Statement("count_ahead", {"id": waiting[-1], "names": dumps(["type.0"]), "limit": BATCH}),
        "count_ahead_in_key": Statement(
            "count_ahead_in_key", {"id": waiting[-1], "names": dumps(["type.0"]), "limit": BATCH}
        ),
        "last_position": Statement("last_position"),
        "list_tasks": lambda: lists.list_tasks(TaskFilter(), limit=BATCH),
        "list_tasks, next page": lambda: lists.list_tasks(TaskFilter(), limit=BATCH, before=ROWS),
        "list_trouble": lambda: lists.list_tasks(TaskFilter(states=("failed",)), limit=BATCH),
        "search_trouble": lambda: lists.list_tasks(TaskFilter(states=("failed",), search="no"), limit=BATCH),
        "list_held_tasks": Statement("list_held_tasks", {**everything, "limit": BATCH, "offset": 0, "before": None}),
        # Of what waits none is completed: the walk reads it all, as far as it was told to look.
        "walk_tasks": Statement("walk_tasks", {**completed, "before": 4 * ROWS, "floor": 4 * ROWS - WALKED}),
        "pass_tasks": Statement(
            "pass_tasks", {**completed, "before": 4 * ROWS, "floor": 4 * ROWS - WALKED, "limit": BATCH}
        ),
        "list_attempts": Statement("list_attempts", {**ran, "limit": BATCH}),
        "sum_attempts": Statement("sum_attempts", {**ran, "step": 60.0}),
        "date_position": Statement("date_position", {"before": 4 * ROWS}),
        "find_trouble": Statement("find_trouble", {"troubles": dumps(["failed"]), "before": 10**9, "reach": BATCH}),
        "count_failures": Statement("count_failures", {"troubles": None, "name": "type.0", "fingerprint": "no"}),
        "forget_blocks": Statement("forget_blocks", {"block_size": 10_000}),
        "measure_span": Statement("measure_span"),
        "measure_size": Statement("measure_size"),
        "export_tasks": Statement("export_tasks", {"after": 0, "limit": BATCH}),
        "export_groups": Statement("export_groups", {"after": str(UUID(int=0)), "limit": BATCH}),
        "tally_imported": Statement("tally_imported", {"ids": dumps(waiting)}),
        "pick_matching": Statement("pick_matching", {**everything, "after": 0, "until": 10**9, "limit": BATCH}),
        "lock_matching": Statement("lock_matching", {**everything, "picked": dumps(waiting)}),
        "cleanup_tasks": Statement(
            "cleanup_tasks",
            {
                "older_than": datetime.now(UTC),
                "states": dumps(["completed"]),
                "name": None,
                "after": 0,
                "until": 10**9,
                "limit": BATCH,
            },
        ),
        "look_for_live_tasks": Statement("look_for_live_tasks", {"after": 0, "limit": 100}),
        "sweep_tasks": Statement(
            "sweep_tasks",
            {
                "rules": dumps([{"name": None, "state": "completed", "seconds": 60.0}]),
                "after": 0,
                "limit": BATCH,
                "shortest": 60.0,
            },
        ),
        "claim_plain": lambda: claims.claim_tasks(
            claims.Claim(
                instance=instance,
                worker_id="worker-1",
                names=names(1),
                limit=BATCH,
                lease_seconds=60.0,
                held=[],
                plain=True,
            )
        ),
        "claim_lone": lambda: claims.claim_tasks(
            claims.Claim(
                instance=instance,
                worker_id="worker-1",
                names=names(1),
                limit=BATCH,
                lease_seconds=60.0,
                held=[],
                plain=True,
                lone=True,
            )
        ),
        "claim_woken": Statement(
            "claim_woken",
            {
                "instance": str(instance),
                "generation": 0,
                "worker_id": "worker-1",
                "names": dumps(["type.0"]),
                "limit": BATCH,
                "lease": 60.0,
                "held_seqs": "[]",
                "held_versions": "[]",
                "retries": "{}",
                "default_retries": 3,
                "woken": dumps(list(range(BATCH))),
                "priority": 0,
            },
        ),
        "claim_next": lambda: claims.claim_tasks(
            claims.Claim(
                instance=instance,
                worker_id="worker-1",
                names=names(1),
                limit=BATCH,
                lease_seconds=60.0,
                held=[],
                plain=True,
                after=[Position(names(1)[0], 0, "-infinity", 0)],
            )
        ),
        "spread_hints": Statement("spread_hints"),
        "find_keyed": Statement("find_keyed", {"keys": dumps(["key"]), "names": dumps(names(1)), "share": BATCH}),
        "settle_hints": Statement("settle_hints", {"keys": dumps(["key"])}),
        "hint_waiting": Statement("hint_waiting", {"key": ""}),
        "list_slots": Statement("list_slots", {"key": "key", "scope": "", "limit": BATCH}),
        "read_statistics_turn": Statement("read_statistics_turn"),
        "count_running": Statement("count_running"),
        "claim_tasks": lambda: claims.claim_tasks(
            claims.Claim(
                instance=instance,
                worker_id="worker-1",
                names=names(1),
                limit=BATCH,
                lease_seconds=60.0,
                held=[],
                keyed=False,
                limited=False,
            )
        ),
        "take_limits": Statement("take_limits", {"names": dumps(names(2))}),
        "spend_tokens": Statement("spend_tokens", {"seqs": dumps([1, 2, 3])}),
        "find_hints": Statement("find_hints", {"names": dumps(names(2))}),
        "look_around": lambda: claims.look_around(instance, names(2)),
    }


SINGLE = {
    "measure_size",
    "read_statistics_turn",
    "measure_span",
    "insert_task",
    "insert_tasks",
    "expire_holder",
    "replace_task",
    "get_task",
    "find_ids",
    "watch_task",
    "last_position",
    "claim_lone",
}
PAGES_PER_ROW, STEPS_PER_ROW = 45, 1_000
"""An update that moves a row enters it in every index, three or four pages each."""


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_every_statement_about_tasks_is_looked_at(dialect: str) -> None:
    about_tasks = {name for name, sql in load_sql(dialect).items() if re.search(r"[ .]tasks\b", sql.text)}
    measured = {name.partition(",")[0] for name in statements(UUID(int=0), [], [str(UUID(int=0))])}
    assert about_tasks - measured - set(WHOLE_TABLE) == set(), (
        "add them to statements(), or to WHOLE_TABLE with a reason"
    )


@pytest.mark.parametrize("emptied", [False, True], ids=["new", "emptied"])
def test_postgres_looks_up_few_pages(emptied: bool, new_postgres: Callable[[], PostgresTable]) -> None:
    table, history = new_postgres(), new_postgres()
    history.fill("finished", 20_000)
    history.analyze()
    if emptied:
        table.execute("VACUUM ANALYZE tasks")
    for make in statements(table.instance, [(str(UUID(int=0)), 1)], [str(UUID(int=0))]).values():
        table.explain(make)
    for kind in ("finished", "future", "higher", "foreign"):
        table.fill(kind, ROWS)
    table.fill("due", DUE + SPREAD)
    held = claim(table)
    states: dict[str, Callable[[], None]] = {
        "planned while it was empty": lambda: None,
        "never analysed": table.forget_statistics,
        "analysed when all were finished": lambda: table.take_statistics(history),
        "analysed": table.analyze,
    }
    too_much = {}
    for state, reach in states.items():
        reach()
        for name, make in statements(table.instance, held, due_ids(BATCH, start=500)).items():
            table.explain(make)  # New statistics have the catalogs read anew, which counts too.
            plan = table.explain(make)
            if plan.buffers > PAGES_PER_ROW * (1 if name in SINGLE else BATCH) or plan.whole_scans:
                too_much[f"{name}, {state}"] = (plan.buffers, plan.whole_scans)
    assert not too_much


def test_sqlite_visits_few_rows(new_sqlite: Callable[[], SqliteTable]) -> None:
    table = new_sqlite()
    for kind in ("finished", "future", "higher", "foreign"):
        table.fill(kind, ROWS)
    table.fill("due", DUE + SPREAD)
    held = claim(table)
    states: dict[str, Callable[[], None]] = {
        "never analysed": lambda: None,
        "analysed": table.analyze,
    }
    too_much = {}
    for state, reach in states.items():
        reach()
        for name, make in statements(table.instance, held, due_ids(BATCH, start=500)).items():
            if name.partition(",")[0] not in load_sql("sqlite"):
                continue
            steps = table.steps(make)
            if steps > STEPS_PER_ROW * (1 if name in SINGLE else BATCH):
                too_much[f"{name}, {state}"] = steps
    assert not too_much


def claim(table: PostgresTable | SqliteTable) -> list[tuple[str, int]]:
    """Have the worker hold a hundred running tasks; of another type no more than so many may run at once."""
    table.run(pauses.set_max_running("type.1", 1_000_000))
    return [(task.id, task.version) for task in table.run(table.claim(names(1), BATCH)).tasks]
