"""The least a role needs on PostgreSQL to produce, to work, to look, or to administer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from psycopg import sql


class Duty(StrEnum):
    """What a role is for."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    ADMIN = "admin"


ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
_STATISTICS: Final = {
    "tasklib_stats_outcomes": "SELECT, INSERT, DELETE",
    "tasklib_stats_depths": "SELECT, INSERT, DELETE",
    "tasklib_stats_totals": "SELECT, INSERT, UPDATE",
    "tasklib_stats_blocks": ALL,
    "tasklib_stats_position": "SELECT, INSERT, UPDATE",
    "tasklib_stats_deleted": "SELECT, INSERT, DELETE",
    "tasklib_chores": ALL,
}
_WORKFLOWS: Final = (
    *("tasklib_steps", "tasklib_waits", "tasklib_events", "tasklib_groups", "tasklib_edges", "tasklib_tallies"),
    "tasklib_budgets",
)
_READABLE: Final = (
    *("tasks", "tasklib_workers", "tasklib_claims", "tasklib_idle", "tasklib_hints", "tasklib_controls"),
    *("tasklib_key_limits", "tasklib_worker_history", "tasklib_objectives", "tasklib_error_marks", "tasklib_copied"),
    *_WORKFLOWS,
    *("tasklib_schedules", "tasklib_declarations", *_STATISTICS, "tasklib_migrations"),
)
_SUBMITTED: Final = (
    "id, name, args, kwargs, tags, headers, scheduled_at, created_at, updated_at, expires_at, priority, max_retries, "
    "timeout_seconds, unique_key, concurrency_key"
)
"""What a submission consists of; the place in the order of insertion is not its to choose."""
_FOUND: Final = "id, seq, name, state, created_at, live_key, unique_key, due_at, expires_at, marks"
"""What the holder of a unique key is found by."""
RIGHTS: Final[Mapping[Duty, Mapping[str, str]]] = {
    # Stores tasks and finds the holder of a unique key; reads no arguments, results or errors.
    Duty.PRODUCER: {
        "tasks": f"INSERT ({_SUBMITTED}), SELECT ({_FOUND})",
        "tasklib_idle": "SELECT",
        "tasklib_migrations": "SELECT",
    },
    # Runs tasks, and those that tasks and schedules make; removes finished ones by the rules of retention.
    Duty.WORKER: {
        "tasks": ALL,
        "tasklib_workers": ALL,
        "tasklib_worker_history": ALL,
        "tasklib_claims": ALL,
        "tasklib_idle": ALL,
        "tasklib_hints": ALL,
        "tasklib_key_limits": ALL,
        "tasklib_controls": "SELECT, INSERT, UPDATE",  # stores the limits that its tasks declare
        "tasklib_audit": "INSERT",  # what its program pauses or limits
        "tasklib_schedules": ALL,
        "tasklib_declarations": "SELECT, INSERT, UPDATE",
        **dict.fromkeys(_WORKFLOWS, ALL),
        **_STATISTICS,
        "tasklib_migrations": "SELECT",
    },
    # Sees everything but tokens, idempotency keys and the audit log.
    Duty.VIEWER: dict.fromkeys(_READABLE, "SELECT"),
    # Everything that the HTTP service and the command line do; the audit log is only added to.
    Duty.ADMIN: {
        **dict.fromkeys(_READABLE, ALL),
        "tasklib_migrations": "SELECT",
        "tasklib_tokens": ALL,
        "tasklib_idempotency": ALL,
        "tasklib_audit": "SELECT, INSERT",
    },
}
"""What each duty may do to each table; whatever is not named is denied."""
CLAIMING: Final = frozenset({Duty.WORKER, Duty.ADMIN})
"""Who gives a claim its version."""


def grants(schema: str, duty: Duty, role: str) -> list[str]:
    """The statements that give a role what its duty needs, and take away what it had before."""
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    first = [
        "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}",
        "REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {role}",
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
    ]
    if duty in CLAIMING:
        first.append("GRANT USAGE ON SEQUENCE {schema}.tasklib_versions TO {role}")
    texts = [sql.SQL(each).format(**names) for each in first]  # pyright: ignore[reportArgumentType]
    for table, rights in RIGHTS[duty].items():
        template = f"GRANT {rights} ON {{schema}}.{{table}} TO {{role}}"
        texts.append(sql.SQL(template).format(**names, table=sql.Identifier(table)))  # pyright: ignore[reportArgumentType]
    return [text.as_string(None) + ";" for text in texts]
