"""Workflows: recording steps, and waking what waits; every write of an attempt is fenced by its claim's version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.insights.findings import Parked
from tasklib.errors import ClaimLost
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.rows import RowReader, json_value, moment, uuid
from tasklib.storage.statement import Operation, Row, Statement


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A recorded step, for people to see."""

    key: str
    number: int
    kind: str
    """`step`, `sleep`, `wait`, `ask`, `run`, `map`, `flow` or `spend`."""
    state: str
    """`open`, `done` or `failed`."""
    value: Any
    error: Any
    question: str | None
    tries: int
    note: str | None
    started_at: datetime | None
    ended_at: datetime | None
    until: datetime | None
    undo: str | None
    """The name of the task that undoes it if the workflow ends without success."""


MOST_STEPS: Final = 10_000
"""Steps that one run of a workflow may have; `restart` starts over."""
NOTIFIED_AT_ONCE: Final = 300
"""Woken tasks that one notification names; it takes fewer than 8,000 bytes."""

Step = Mapping[str, Any]
"""A step to record: task_id, version, key, number, kind, state, and its other columns where they are not empty."""


def step_row(key: str, number: int, kind: str, digest: str | None = None, tries: int = 0) -> dict[str, Any]:
    """A step that is open, without its task."""
    return {"key": key, "number": number, "kind": kind, "state": "open", "digest": digest, "tries": tries}


def timed(row: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The row with the time it has taken: it began so many seconds ago, and unless it is open it ends now."""
    return row | {"started_ago": seconds, "ended": row["state"] != "open"}


def load_steps(task_id: str) -> Operation[list[dict[str, Any]]]:
    """Everything that a task has recorded, in its order."""
    rows = yield Statement("load_steps", {"id": task_id})
    # The number decides where a clock is too coarse.
    latest = max(((row["started_at"], row["number"]) for row in rows if row["started_at"] is not None), default=None)
    return [_step(row) | {"passed": _is_passed(row, latest)} for row in rows]


def list_steps(task_id: UUID) -> Operation[list[StepInfo]]:
    """Everything that a task has recorded, for people to see."""
    return [_shown(row) for row in (yield Statement("load_steps", {"id": str(task_id)}))]


def _shown(row: Row) -> StepInfo:
    """A step for people to see; what cannot be read of it is left empty, and its note says so."""
    reader = RowReader(row)
    shown = StepInfo(
        key=row["key"],
        number=row["number"],
        kind=row["kind"],
        state=state_of(row),
        value=reader.read("value", json_value) if row["state"] == "done" else None,
        error=reader.read("error", json_value),
        question=reader.read("ask", _question),
        tries=row["tries"],
        note=row["note"],
        started_at=moment(row["started_at"]),
        ended_at=moment(row["ended_at"]),
        until=moment(row["until"]),
        undo=row["undo"],
    )
    if not reader.problems:
        return shown
    return replace(shown, note="; ".join([*([shown.note] if shown.note else []), *reader.problems]))


def state_of(row: Mapping[str, Any]) -> str:
    """The state of a recorded step; a sleep is done when its time is over, which is not written to its row."""
    return "done" if row["kind"] == "sleep" and (row["left"] or 0.0) <= 0 else str(row["state"])


def _question(text: str | None) -> str | None:
    return None if text is None else str(json_value(text)["question"])


def record_steps(steps: Sequence[Step]) -> Operation[None]:
    """Record steps of running attempts; ClaimLost for the first whose attempt is not the current one."""
    refused = yield from try_record_steps(steps)
    if refused:
        first = next(step for step in steps if (step["task_id"], step["key"]) in refused)
        raise ClaimLost(UUID(first["task_id"]), first["version"])


def try_record_steps(steps: Sequence[Step], *, marked: bool = False) -> Operation[set[tuple[str, str]]]:
    """The same; returns task and key of those that changed nothing, because their attempt is not the current one.

    With `marked`, on PostgreSQL alone, a statement records them that leaves the tasks' own rows as they are: these say
    already that they have steps and no retries, and the steps bind no undo.
    """
    ordered = sorted(steps, key=lambda step: (step["task_id"], step["key"]))
    rows = yield Statement("record_more_steps" if marked else "record_steps", {"batch": dumps(ordered)})
    recorded = {(str(row["task_id"]), row["key"]) for row in rows}
    return {(step["task_id"], step["key"]) for step in steps} - recorded


def open_step(step: Step) -> Operation[bool]:
    """Record an open step, locked with its task; False if it was opened before, and has been filled since.

    A request that is sent again after a lost reply would otherwise empty it, and what filled it would be lost.
    """
    if not (yield from try_record_steps([step])):
        return True
    if not (yield Statement("lock_attempt", {"id": step["task_id"], "version": step["version"]})):
        raise ClaimLost(UUID(step["task_id"]), step["version"])
    return False


def note_step(task_id: str, key: str, note: str) -> Operation[None]:
    """Keep what was odd about a step when it was found."""
    yield Statement("note_step", {"id": task_id, "key": key, "note": note})


def read_time() -> Operation[float]:
    """Seconds since 1970 by the database's clock."""
    return (yield from read_clock()).timestamp()


def wake_parked(code: Mapping[str, str]) -> Operation[int]:
    """Let tasks run again that wait for other code than this, given as a hash by name; how many."""
    batch = dumps([{"name": name, "code": value} for name, value in sorted(code.items())])
    woken = yield Statement("wake_parked", {"batch": batch})
    yield from notify_woken(woken)
    return len(woken)


def list_parked(limit: int) -> Operation[list[Parked]]:
    """Workflows that wait for other code, by name, among the first `limit` that wait without an end."""
    rows = yield Statement("list_parked", {"limit": limit})
    return [Parked(row["name"], row["count"], moment(row["since"]), uuid(row["example"])) for row in rows]


def wake_tasks(ids: Iterable[str]) -> Operation[None]:
    """Let suspended tasks run again because something they wait for has come, and notify workers of them."""
    yield Statement("wake_tasks", {"ids": dumps(sorted(set(ids))), "page": NOTIFIED_AT_ONCE})


def notify_woken(rows: Sequence[Row]) -> Operation[None]:
    """Notify workers of tasks that have been woken in this transaction: begun work comes before new."""
    for first in range(0, len(rows), NOTIFIED_AT_ONCE):
        yield Statement(
            "notify_woken", {"seqs": ",".join(str(row["seq"]) for row in rows[first : first + NOTIFIED_AT_ONCE])}
        )


def _is_passed(row: Row, latest: tuple[Any, int] | None) -> bool:
    """Whether the function has gone on since the step ended: it has begun another one."""
    return latest is not None and row["ended_at"] is not None and (row["ended_at"], row["number"]) < latest


def _step(row: Row) -> dict[str, Any]:
    plain = ("key", "number", "kind", "state", "digest", "tries", "left", "note", "has_undo")
    in_json = ("value", "error", "ask", "events")
    return {name: row[name] for name in plain} | {name: json_value(row[name]) for name in in_json}
