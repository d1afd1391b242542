"""Children with a unique key: where a live task holds the key, the workflow follows that one, which is not its own.

To follow it, the workflow locks the holder, checks that it has not ended, and marks it before the edge exists, so that
its end counts whenever it comes.  Workflows begin to follow one after the other, so that no two can close a circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.errors import UniqueConflict
from tasklib.storage.statement import Operation, Statement

TRIES: Final = 5
"""How often a holder is looked for because the last one has just ended."""


def lock_holders(task_id: str, rows: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Lock what a workflow would follow, together with its own row; comes before anything else locks that row."""
    for row in rows:
        if row.get("unique_key") is not None:
            yield Statement("lock_following")
            yield from _lock_holder(task_id, row)


def store_children(task_id: str, group_id: str, rows: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Store children of a group; the one that has a unique key is followed instead if a live task holds the key."""
    keyed = [row for row in rows if row.get("unique_key") is not None]
    if not keyed:
        yield Statement("insert_members", {"batch": dumps(list(rows)), "group_id": group_id})
        return
    (child,) = keyed
    for _ in range(TRIES):
        holder = yield from _lock_holder(task_id, child)
        if holder == child["id"]:
            return
        if holder is not None:
            yield Statement("follow_task", {"id": holder, "group_id": group_id})
            return
        if (yield Statement("insert_members", {"batch": dumps([child]), "group_id": group_id})):
            return
    raise _conflict(child, None, "its holder changes too fast")


def require_free_key(child: Mapping[str, Any]) -> Operation[None]:
    """UniqueConflict if a child that has ended cannot run again because another task holds its key now."""
    if child.get("unique_key") is None:
        return
    rows = yield Statement("find_live_keys", {"keys": dumps([_key(child)])})
    for row in rows:
        if row["live_key"] is not None and str(row["id"]) != child["id"]:
            raise _conflict(child, str(row["id"]), "so the child that has failed cannot run again")


def _lock_holder(task_id: str, child: Mapping[str, Any]) -> Operation[str | None]:
    """The live task with the child's key, locked; the child itself if it is stored already, None if the key is free."""
    for _ in range(TRIES):
        found = [
            (str(row["id"]), row["live_key"])
            for row in (yield Statement("find_live_keys", {"keys": dumps([_key(child)])}))
        ]
        if any(each == child["id"] for each, _ in found):
            return str(child["id"])
        holder = next((each for each, key in found if key is not None), None)
        if holder is None:
            return None
        rows = yield Statement("lock_holder", {"ids": dumps(sorted({task_id, holder}))})
        if any(str(row["id"]) == holder and row["live_key"] == child["unique_key"] for row in rows):
            if (yield Statement("find_circle", {"id": task_id, "holder": holder})):
                raise _conflict(child, holder, "it waits for this workflow, which would wait for itself")
            return holder
    raise _conflict(child, None, "its holder changes too fast")


def _key(child: Mapping[str, Any]) -> dict[str, Any]:
    return {name: child[name] for name in ("id", "name", "unique_key")}


def _conflict(child: Mapping[str, Any], holder: str | None, reason: str) -> UniqueConflict:
    return UniqueConflict(child["name"], child["unique_key"], None if holder is None else UUID(holder), reason)
