"""Copying a queue: its tasks from one database to another, in insertion order, with what workflows have recorded.

Groups are copied first and kept open, so that none is complete while its members still arrive; a copied member that
has ended counts as if it had ended in the target.  Once all tasks are copied, the groups are closed.  What the target
has already stays as it is, and nothing is copied twice: the target notes each id in the transaction that stores its
row.  So a copy may be interrupted anywhere, the source's transactions may end in any order, and a copied task may have
been removed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from tasklib.core.codec import dumps, loads
from tasklib.storage.rows import moment, moment_text
from tasklib.storage.statement import BEGIN, COMMIT, Operation, Row, Statement

STEP: Final = 500
MOMENTS = (
    *("scheduled_at", "started_at", "completed_at", "created_at", "updated_at"),
    *("next_retry_at", "expires_at", "cancel_requested_at"),
)
DOCUMENTS = ("args", "kwargs", "tags", "headers", "result", "history", "log")
PLAIN = (
    *("id", "name", "state", "timeout_seconds", "progress", "priority", "version", "attempts", "retry_count"),
    *("max_retries", "lost_count", "error", "progress_message", "finished_by", "unique_key", "concurrency_key"),
    *("waits_for", "marks", "fingerprint"),
)
FIRST: Final = str(UUID(int=0))
"""Before the id of any group."""

Records = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Exported:
    """Some tasks as they are stored, with their steps, their waits and the messages sent to them."""

    rows: list[dict[str, Any]]
    last: int
    """The position to continue from."""
    unreadable: list[str] = field(default_factory=list[str])
    """The ids of tasks that cannot be read, and so cannot be copied."""
    steps: Records = field(default_factory=list[dict[str, Any]])
    waits: Records = field(default_factory=list[dict[str, Any]])
    messages: Records = field(default_factory=list[dict[str, Any]])


@dataclass(frozen=True, slots=True)
class ExportedGroups:
    """Some groups of children, and the edges between tasks of flows."""

    groups: Records
    edges: Records
    last: str


def export_tasks(after: int) -> Operation[Exported]:
    """The next tasks after a position; running ones become waiting ones, and their attempt does not count."""
    page = Statement("export_tasks", {"after": after, "limit": STEP})
    rows = yield page
    workflows = sorted(str(row["id"]) for row in rows if row["marks"] is not None)
    if workflows:
        # A step is filled, and its task woken, under the task's lock, so with that lock both are read as of one moment.
        yield BEGIN
        yield Statement("lock_tasks", {"ids": dumps(workflows)})
        rows = yield page
    found = Exported([], rows[-1]["seq"] if rows else after)
    for row in rows:
        try:
            found.rows.append(_exported(row))
        except ValueError:
            found.unreadable.append(str(row["id"]))
    if rows:
        every = {"ids": dumps([str(row["id"]) for row in rows])}
        found.messages.extend(_record(row) for row in (yield Statement("export_messages", every)))
    if workflows:
        found.steps.extend(_record(row) for row in (yield Statement("export_steps", {"ids": dumps(workflows)})))
        found.waits.extend(_record(row) for row in (yield Statement("export_waits", {"ids": dumps(workflows)})))
    return found


def import_tasks(found: Exported) -> Operation[int]:
    """Store tasks of another database with their records, except those that exist or were copied before; returns how
    many were stored."""
    yield BEGIN
    fresh = yield from _mark(row["id"] for row in found.rows)
    rows = [row for row in found.rows if row["id"] in fresh]
    new = [str(row["id"]) for row in (yield Statement("import_tasks", {"batch": dumps(rows)}))]
    stored = set(new)
    if fresh > stored:
        yield Statement("unmark_copied", {"ids": dumps(sorted(fresh - stored))})
    for name, records in (
        ("import_steps", found.steps),
        ("import_waits", found.waits),
        ("import_events", found.messages),
    ):
        yield from _import(name, (each for each in records if each["task_id"] in stored))
    if any(row["marks"] is not None for row in found.rows):
        yield Statement("tally_imported", {"ids": dumps(new)})
    yield COMMIT
    if found.waits:
        # Once committed, these waits are found by every fact emitted from now on; earlier facts are delivered again.
        yield Statement("redeliver_facts", {"names": dumps(sorted({each["event"] for each in found.waits}))})
    return len(new)


def export_facts(after: int) -> Operation[tuple[Records, int]]:
    """The next facts after a position, and the position to continue from."""
    rows = yield Statement("export_facts", {"after": after, "limit": STEP})
    return [_record(row) for row in rows], rows[-1]["id"] if rows else after


def import_facts(facts: Records) -> Operation[None]:
    """Store facts of another database, to be delivered; known ones stay, and withdrawn ones stay withdrawn."""
    yield BEGIN
    keys = [_key("fact", fact["name"]) for fact in facts]
    fresh = yield from _mark(keys)
    yield from _import("import_events", (fact for key, fact in zip(keys, facts, strict=True) if key in fresh))


def export_groups(after: str) -> Operation[ExportedGroups]:
    """The next groups after an id, with their edges."""
    rows = yield Statement("export_groups", {"after": after, "limit": STEP})
    if not rows:
        return ExportedGroups([], [], after)
    groups = [_record(row) | {"sealed": bool(row["sealed"]), "stopped": bool(row["stopped"])} for row in rows]
    edges = yield Statement("export_edges", {"ids": dumps([group["id"] for group in groups])})
    return ExportedGroups(groups, [_record(row) for row in edges], str(groups[-1]["id"]))


def import_groups(found: ExportedGroups) -> Operation[None]:
    """Store groups that were not copied before, open, before their members are copied."""
    yield BEGIN
    fresh = yield from _mark(group["id"] for group in found.groups)
    yield from _import("import_groups", (group for group in found.groups if group["id"] in fresh))
    yield from _import("import_edges", (edge for edge in found.edges if edge["group_id"] in fresh))


def close_groups(found: ExportedGroups) -> Operation[None]:
    """Close the groups, because all their members have been copied; closed ones stay as they are."""
    yield from _import("close_groups", found.groups)


def import_setting(kind: str, name: str, store: Callable[[], Operation[Any]] | None) -> Operation[bool]:
    """Store a setting of another database; False if it was copied before, or exists already: then `store` is None."""
    yield BEGIN
    fresh = yield from _mark([_key(kind, name)])
    if not fresh or store is None:
        return False
    yield from store()
    return True


def _mark(ids: Iterable[str]) -> Operation[set[str]]:
    """Note that these are copied; returns those that were not copied before."""
    return {str(row["id"]) for row in (yield Statement("mark_copied", {"ids": dumps(list(ids))}))}


def _key(kind: str, name: str) -> str:
    return str(uuid5(NAMESPACE_OID, dumps([kind, name])))


def _import(name: str, records: Iterable[Mapping[str, Any]]) -> Operation[None]:
    every = list(records)
    for start in range(0, len(every), STEP):
        yield Statement(name, {"batch": dumps(every[start : start + STEP])})


def _record(row: Row) -> dict[str, Any]:
    """A row in a form that both databases read from JSON; JSON documents stay text."""
    found = dict(row)
    for name in ("id", "task_id", "group_id"):
        if isinstance(found.get(name), UUID):
            found[name] = str(found[name])
    for name in ("until", "started_at", "ended_at", "created_at", "fired_at"):
        at = moment(found.get(name))
        if at is not None:
            found[name] = moment_text(at)
    return found


def _exported(row: Row) -> dict[str, Any]:
    data = {name: row[name] for name in PLAIN}
    data["id"] = str(data["id"])
    data["group_id"] = None if row["group_id"] is None else str(row["group_id"])
    for name in MOMENTS:
        at = moment(row[name])
        data[name] = None if at is None else moment_text(at)
    for name in DOCUMENTS:
        data[name] = None if row[name] is None else loads(row[name])
    dumps(data)  # an infinite number can be read but not written
    if data["state"] == "running":
        data |= {"state": "pending", "attempts": data["attempts"] - 1, "cancel_requested_at": None}
        data |= {"progress": None, "progress_message": None}
    return data
