"""Rows by the million, made inside the database in seconds: the crowd among which a claim must find its few.

The worker of these tests knows the types `type.0` … `type.499`, or the first of them only.  Nearly all rows of a kind
are of the first, so that one registered type meets the whole million; the last few are spread over all, so that 500 do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tasklib.storage.statement import Operation, Statement

TYPES = 500
SPREAD = 4 * TYPES
DUE = 2_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of row, by what distinguishes it for the claim."""

    prefix: str
    """The start of its ids, so that no two kinds share one."""
    hours: float
    """When it is due, from now."""
    state: str = "pending"
    priority: int = 0
    foreign: bool = False
    """Of types that the worker does not know."""
    waits_for: str | None = None
    """What a workflow waits for, without a slot and without an end."""

    @property
    def parameters(self) -> dict[str, Any]:
        """What the statements below take, beside the number of rows."""
        moment = datetime.now(UTC) + timedelta(hours=self.hours)
        second = moment.replace(tzinfo=None).isoformat(" ", "seconds")
        ended = self.state == "completed"
        return {**asdict(self), "second": second, "ended": ended, "types": TYPES, "spread": SPREAD}


def one_statement(statement: Statement) -> Operation[None]:
    """A statement as an operation, which the driver gives its `now`."""
    yield statement


KINDS = {
    "finished": Kind("01900000-0000-7000-8000-", -24, state="completed"),
    "future": Kind("01900000-0000-7000-8001-", +24),
    "higher": Kind("01900000-0000-7000-8002-", +24, priority=5),
    "foreign": Kind("01900000-0000-7000-8003-", -2, foreign=True),
    "due": Kind("01900000-0000-7000-8004-", -1),
    "suspended": Kind("01900000-0000-7000-8005-", -2, priority=5, waits_for="event shipped"),
}


def names(types: int) -> list[str]:
    """The types a worker knows."""
    return [f"type.{number}" for number in range(types)]


def due_ids(count: int, start: int = 1) -> list[str]:
    """The ids of some due rows of the first type."""
    return [f"{KINDS['due'].prefix}{number:012x}" for number in range(start, start + count)]


POSTGRES = """
INSERT INTO tasks (
    id, name, priority, state, scheduled_at, created_at, updated_at, kwargs,
    started_at, completed_at, version, attempts, result, finished_by, waits_for, marks
)
SELECT
    (%(prefix)s || lpad(to_hex(n), 12, '0'))::uuid,
    CASE
        WHEN %(foreign)s THEN 'foreign.' || (n %% 50)
        ELSE 'type.' || (greatest(0, n - (%(rows)s - %(spread)s)) %% %(types)s)
    END,
    %(priority)s, %(state)s, c.second + n %% 1000000 * interval '1 microsecond', c.second, c.second,
    jsonb_build_object('n', n, 'to', 'someone@example.com'),
    CASE WHEN %(ended)s THEN c.second END, CASE WHEN %(ended)s THEN c.second END,
    %(ended)s::boolean::integer, %(ended)s::boolean::integer,
    CASE WHEN %(ended)s THEN jsonb_build_object('value', n) END, CASE WHEN %(ended)s THEN 'worker-1' END,
    %(waits_for)s::text, CASE WHEN %(waits_for)s::text IS NOT NULL THEN 4 END
FROM generate_series(1, %(rows)s) AS n CROSS JOIN (SELECT %(second)s::timestamp AT TIME ZONE 'UTC' AS second) AS c
"""

SQLITE = """
WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :rows)
INSERT INTO tasks (
    id, name, priority, state, scheduled_at, created_at, updated_at, kwargs,
    started_at, completed_at, version, attempts, result, finished_by, waits_for, marks
)
SELECT
    :prefix || printf('%012x', n),
    CASE
        WHEN :foreign THEN 'foreign.' || (n % 50)
        ELSE 'type.' || (max(0, n - (:rows - :spread)) % :types)
    END,
    :priority, :state, :second || printf('.%06d', n % 1000000), :second || '.000000', :second || '.000000',
    json_object('n', n, 'to', 'someone@example.com'),
    CASE WHEN :ended THEN :second || '.000000' END, CASE WHEN :ended THEN :second || '.000000' END,
    :ended, :ended,
    CASE WHEN :ended THEN json_object('value', n) END, CASE WHEN :ended THEN 'worker-1' END,
    :waits_for, CASE WHEN :waits_for IS NOT NULL THEN 4 END
FROM series
"""
