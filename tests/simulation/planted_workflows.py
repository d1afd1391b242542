"""Bugs on purpose in workflows: steps, waits, messages, children, flows and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasklib.storage.operations.limits import budgets
from tasklib.storage.operations.workflows import groups, steps
from tasklib.storage.statement import Operation, Row
from tasklib.worker.workflows import steps as step_logic
from tests.simulation.breaking import NO_SELF_FENCE, Bug, both, replaced, schema, sql

_load, _release = steps.load_steps, groups._release


def _load_all_but_the_last(task_id: str) -> Operation[list[dict[str, Any]]]:
    found = yield from _load(task_id)
    return found[:-1]


def _record_nothing(recorded: Sequence[dict[str, Any]]) -> Operation[None]:
    """What belongs to the record is committed, and the record is left for later."""
    return
    yield


def _almost_over(group: Row) -> bool:
    return bool(group["sealed"] and group["ended"] >= group["total"] - 1)


def _release_whatever_happened(group: Row) -> Operation[None]:
    yield from _release(dict(group) | {"run_if": "end"})


BUGS: dict[str, Bug] = {
    "a step is recorded without its fence": both(
        sql("record_steps", "t.version = b.value ->> 'version' AND t.state = 'running'", "1"), NO_SELF_FENCE
    ),
    "a recorded step is not found again": replaced(steps, "load_steps", _load_all_but_the_last),
    "an effect is committed without its record": replaced(step_logic, "record_steps", _record_nothing),
    "an event emitted before the wait is not found": sql("find_event", "e.task_id IS NULL OR", "0 OR"),
    "a fact goes while a task lives that may wait for it": sql("look_for_live_tasks", "p.completed_at IS NULL", "0"),
    "a delivery wakes nobody": sql("wake_tasks", "AND waits_for IS NOT NULL", "AND 0"),
    "an event between the look and the suspension is forgotten": sql("end_attempts", "AND s.state <> 'open'", "AND 0"),
    "a wait that was given up is not opened again": sql("reopen_steps", "kind IN ('wait', 'ask')", "0"),
    "a sleep is over at once": sql("record_steps", "b.value ->> 'until_in'))", "0 * (b.value ->> 'until_in')))"),
    "a message is taken twice": sql("take_message", "SET taken_by = :key,", "SET taken_by = NULL,"),
    "the newest message is taken first": sql(
        "find_event", "ORDER BY e.task_id IS NULL, e.id", "ORDER BY e.task_id IS NULL, -e.id"
    ),
    "tallies are added twice": sql(
        "fold_tallies", "DELETE FROM tasklib_tallies WHERE", "DELETE FROM tasklib_tallies WHERE 0 AND"
    ),
    "a fan-in fires before the last child": replaced(groups, "_is_over", _almost_over),
    "a fan-in fires twice": both(
        sql(
            "find_tallied",
            "t.group_id AS id FROM tasklib_tallies AS t WHERE t.group_id",
            "t.id FROM tasklib_groups AS t WHERE t.id",
        ),
        sql("fold_tallies", "g.fired_at", "NULL AS fired_at"),
    ),
    "an end is not counted": schema("DROP TRIGGER tasks_tally"),
    "a child escapes a cancel": schema("DROP TRIGGER tasks_tally_failure"),
    "a flow goes on after a failure": replaced(groups, "_release", _release_whatever_happened),
    "a budget is overspent": sql("take_from_budget", ">= :cost", ">= 0 * :cost"),
    "tokens are taken and not recorded": replaced(budgets, "record_steps", _record_nothing),
}
