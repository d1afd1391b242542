"""Groups: children that a workflow waits for, stored in chunks, counted as they end, cancelled with their workflow.

A member that ends, or comes alive again, leaves a tally in its own transaction, by a trigger.  The fold adds tallies up
under the group's lock; when all members have ended, or too many failed, it fills the step that waits, once.  Locks are
taken in one order: groups by id, then tasks by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.task import NewTask
from tasklib.errors import ClaimLost, PermissionDenied
from tasklib.storage.operations.tasks import columns_of
from tasklib.storage.operations.workflows.following import lock_holders, require_free_key, store_children
from tasklib.storage.operations.workflows.retrying import begin_anew, resume_tasks
from tasklib.storage.operations.workflows.steps import open_step, wake_tasks
from tasklib.storage.rows import json_value
from tasklib.storage.statement import BEGIN, COMMIT, Operation, Row, Statement

PAGE: Final = 1000
REMOVED: Final = 10 * PAGE
"""Members of one group that one fold removes; others wait for it meanwhile."""
FIRST: Final = str(UUID(int=0))
"""Where the members of any group begin: before every id."""
SHOWN: Final = 100
"""Children of a group that a tree shows."""
GROUPS: Final = 100
"""Groups that one fold looks at."""
UNSUCCESSFUL: Final = ("failed", "cancelled", "buried")
"""The states of members that have ended in anything but success."""


def rows_of(new: Sequence[NewTask]) -> list[dict[str, Any]]:
    """Children as the journal takes them."""
    return [columns_of(each) for each in new]


def open_group(
    task_id: str,
    version: int,
    step: Mapping[str, Any],
    group: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]] = (),
    edges: Sequence[Mapping[str, Any]] = (),
) -> Operation[None]:
    """Record the open step, and its group with the first children, or a flow; done again it changes nothing."""
    yield BEGIN
    yield from lock_holders(task_id, rows)
    if not (yield from open_step({**step, "task_id": task_id, "version": version})):
        return
    counted = {"total": len(rows), "sealed": group["sealed"], "max_failures": group["max_failures"]}
    named = {"id": group["id"], "task_id": task_id, "key": step["key"], "kind": step["kind"]}
    if not (yield Statement("insert_group", named | counted)):
        return  # Stored with all that follows by a try whose reply was lost.
    if after:
        yield Statement("insert_after_groups", {"groups": dumps(list(after)), "edges": dumps(list(edges))})
    if rows:
        yield from store_children(task_id, group["id"], rows)


def store_flow(
    rows: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]
) -> Operation[None]:
    """Store the tasks of a flow and what is before each, all or none; done again it changes nothing."""
    yield BEGIN
    try:
        if after:
            yield Statement("insert_after_groups", {"groups": dumps(list(after)), "edges": dumps(list(edges))})
        yield Statement("insert_members", {"batch": dumps(list(rows)), "group_id": None})
    except PermissionDenied as error:
        raise PermissionDenied(
            f"a flow stores what its tasks wait for, which this role may not ({error}); submit it over HTTP, or with a "
            "role that has the rights of a worker"
        ) from error


def add_members(
    task_id: str, version: int, group_id: str, before: int, rows: Sequence[Mapping[str, Any]], digest: str
) -> Operation[int]:
    """Store further children, after the `before` first; how many there are now.

    Done again it changes nothing, and neither does a workflow that is not the current attempt any more.  `digest` is
    what `look_at_group` says of the inputs from then on.
    """
    yield BEGIN
    (group,) = yield Statement("lock_group", {"id": group_id})
    yield from _require_attempt(task_id, version)
    total: int = group["total"]
    if group["stopped_at"] is not None:  # They would be cancelled; if the workflow is resumed, they are stored then.
        return before + len(rows)
    if total != before:
        return total
    yield Statement("insert_members", {"batch": dumps(list(rows)), "group_id": group_id})
    grown = {"total": total + len(rows), "sealed": False, "last_digest": digest}
    yield Statement("grow_group", {"id": group_id, **grown})
    return total + len(rows)


def look_at_group(task_id: str, version: int, group_id: str) -> Operation[dict[str, Any]]:
    """How many children are stored, of which inputs, and whether all are."""
    yield BEGIN
    (group,) = yield Statement("lock_group", {"id": group_id})
    yield from _require_attempt(task_id, version)
    return {"total": group["total"], "sealed": bool(group["sealed"]), "digest": group["last_digest"]}


def seal_group(task_id: str, version: int, group_id: str) -> Operation[None]:
    """No more children will come: if all have ended by now, the workflow is notified now."""
    yield BEGIN
    (group,) = yield Statement("lock_group", {"id": group_id})
    yield from _require_attempt(task_id, version)
    if not group["sealed"] and group["stopped_at"] is None:
        grown = {"total": group["total"], "sealed": True, "last_digest": None}
        yield Statement("grow_group", {"id": group_id, **grown})
    yield from _fold([group_id])


def restart_children(
    task_id: str,
    version: int,
    group_id: str,
    rows: Sequence[Mapping[str, Any]] = (),
    patience: Mapping[str, Any] | None = None,
) -> Operation[None]:
    """Let the children run again that had not succeeded when the step that waits for them was opened again.

    `rows` is the one child of a group that has no more: it is stored anew if somebody has deleted it, or if the
    workflow had followed another task.  `patience` has the key of the step and its seconds, which begin anew.
    """
    yield BEGIN
    yield Statement("lock_with_members", {"id": group_id})
    (group,) = yield Statement("lock_group", {"id": group_id})
    is_over = group["fired_at"] is not None or group["stopped_at"] is not None
    if is_over:
        yield from lock_holders(task_id, rows)
    yield from _require_attempt(task_id, version)
    if patience is not None and patience["seconds"] is not None:
        yield Statement("renew_patience", {"id": task_id, **patience})
    if not is_over:
        return
    yield Statement("mark_groups", {"batch": dumps([{"id": group_id, "fired": False, "stopped": False}])})
    after, retryable = FIRST, dumps(UNSUCCESSFUL)
    while members := (yield Statement("find_members", {"id": group_id, "after": after, "limit": PAGE})):
        after = str(members[-1]["id"])
        lost = sorted(str(row["id"]) for row in members if row["state"] in UNSUCCESSFUL)
        if rows and lost:
            yield from require_free_key(rows[0])
        rows = ()
        yield from resume_tasks(lost, retryable)
        if undone := [str(row["id"]) for row in (yield Statement("find_undone", {"ids": dumps(lost)}))]:
            yield from begin_anew(undone, retryable)
    if rows:  # The tallies of the child that was deleted are dropped with it.
        yield Statement("empty_group", {"id": group_id})
        yield from store_children(task_id, group_id, rows)
    yield from _fold([group_id])
    yield Statement("wake_workers")


def fold_groups() -> Operation[int]:
    """Add up what has happened to members, notify workflows whose children have ended, and stop what is to be stopped.

    Returns how many groups it has worked on; those that others work on are left for the next time.
    """
    locked: list[str] = []
    tallied = [str(row["id"]) for row in (yield Statement("find_tallied", {"limit": GROUPS}))]
    if tallied:
        yield BEGIN
        locked = [str(row["id"]) for row in (yield Statement("lock_groups", {"ids": dumps(sorted(tallied))}))]
        if locked:
            yield from _fold(locked)
        if len(locked) < len(tallied):
            yield Statement("drop_orphan_tallies", {"ids": dumps(sorted(set(tallied) - set(locked)))})
        yield COMMIT
    yield Statement("stop_groups_of")
    stopped = yield Statement("find_stopped", {"limit": GROUPS})
    for group in stopped:
        group_id, kind = str(group["id"]), group["kind"]
        if kind in ("gone", "undo"):
            yield from _remove_members(group_id, cancel=kind == "gone")
        else:
            yield from _cancel_members(group_id, kind)
    return len(locked) + len(stopped)


def show_tree(task_id: UUID) -> Operation[dict[str, Any]]:
    """The parent of a task, the tasks before it in its flow, and the children it has waited for.

    Of each group of children the first hundred.
    """
    parents = yield Statement("find_parent", {"id": str(task_id)})
    before = yield Statement("list_before", {"id": str(task_id)})
    groups: list[dict[str, Any]] = []
    for group in (yield Statement("list_groups", {"id": str(task_id)})):
        members = yield Statement("find_members", {"id": str(group["id"]), "after": FIRST, "limit": SHOWN})
        if not members and group["kind"] == "run":
            members = yield Statement("find_followed", {"id": str(group["id"])})
        counts = {name: group[name] for name in ("key", "kind", "total", "ended", "failed", "cancelled")}
        groups.append(counts | {"sealed": bool(group["sealed"]), "children": [_in_short(row) for row in members]})
    waited = [_in_short(row) | {"param": row["param"]} for row in before]
    return {"parent": _in_short(parents[0]) if parents else None, "before": waited, "groups": groups}


def _in_short(row: Row) -> dict[str, Any]:
    return {"id": str(row["id"]), "name": row["name"], "state": row["state"]}


def list_members(group_id: str, after: str) -> Operation[Sequence[Row]]:
    """The next members of a group after an id, in the order of the inputs."""
    return (yield Statement("find_members", {"id": group_id, "after": after, "limit": PAGE}))


def _require_attempt(task_id: str, version: int) -> Operation[None]:
    if not (yield Statement("lock_attempt", {"id": task_id, "version": version})):
        raise ClaimLost(UUID(task_id), version)


def _fold(group_ids: Sequence[str]) -> Operation[None]:
    """Add up tallies of groups that are locked, and notify those whose children have ended."""
    groups = yield Statement("fold_tallies", {"ids": dumps(sorted(group_ids))})
    fired = [group for group in groups if group["fired_at"] is None and _is_awaited(group) and _is_over(group)]
    if not fired:
        return
    yield Statement("lock_tasks", {"ids": dumps(sorted({str(group["task_id"]) for group in fired}))})
    for group in fired:
        yield from (_release(group) if group["kind"] == "after" else _notify(group))
    marks = [
        {"id": str(group["id"]), "fired": True, "stopped": group["stopped_at"] is not None or _is_too_much(group)}
        for group in fired
    ]
    yield Statement("mark_groups", {"batch": dumps(marks)})
    begun = {str(group["task_id"]) for group in fired if group["kind"] != "after"}
    if begun:
        yield from wake_tasks(begun)
    if len(begun) < len(fired):
        yield Statement("wake_workers")


def _is_awaited(group: Row) -> bool:
    """Whether somebody is to be notified: not of children cancelled with their workflow, which run again if it does."""
    return group["kind"] == "after" or group["stopped_at"] is None


def _is_over(group: Row) -> bool:
    return bool(group["sealed"] and group["ended"] >= group["total"]) or _is_too_much(group)


def _is_too_much(group: Row) -> bool:
    most = group["max_failures"]
    return most is not None and group["failed"] + group["cancelled"] > most


def _release(group: Row) -> Operation[None]:
    """Let a task of a flow run with the results of what is before it, or skip it."""
    before = yield Statement("find_arguments", {"id": str(group["id"])})
    lost = any(row["param"] is not None and row["state"] == "deleted" for row in before)
    failed = lost or group["failed"] + group["cancelled"] > 0
    if group["run_if"] == "end" or failed is (group["run_if"] == "failure"):
        arguments = {
            row["param"]: json_value(row["result"])["value"]
            for row in before
            if row["param"] is not None and row["state"] == "completed"
        }
        merged = None
        for row in (yield Statement("get_kwargs", {"id": str(group["task_id"])})) if arguments else ():
            merged = dumps(json_value(row["kwargs"]) | arguments)
        yield Statement("release_task", {"id": str(group["task_id"]), "kwargs": merged})
        return
    others = ", ".join(f"{row['name']} was {row['state']}" for row in before if row["state"] != "completed")
    error = f"Skipped: {others}" if others else "Skipped: nothing before it failed"
    yield Statement("skip_task", {"id": str(group["task_id"]), "error": error})


def _notify(group: Row) -> Operation[None]:
    """Fill the step that waits: with the child itself, or with what became of all."""
    group_id = str(group["id"])
    value = {"group": group_id, **{name: group[name] for name in ("total", "failed", "cancelled")}}
    error: dict[str, Any] | None = None
    if group["kind"] == "run":
        members = yield from _first_member(group_id)
        child = _child(members[0]) if members else {"name": group["key"], "state": "deleted"}
        if child["state"] == "completed":
            value["result"] = child["result"]
        else:
            error = {"type": "TaskFailed", "child": child}
    elif group["kind"] == "flow":
        failed_nodes = yield Statement("find_failed_member", {"id": group_id})
        error = {"type": "TaskFailed", "child": _child(failed_nodes[0])} if failed_nodes else None
    elif _is_too_much(group):
        failed = group["failed"] + group["cancelled"]
        error = {"type": "TaskFailed", "message": f"{failed} of {group['total']} children failed"}
    state = "done" if error is None else "failed"
    batch = dumps([{"id": str(group["task_id"]), "key": group["key"]}])
    filled = {"value": dumps(value), "error": None if error is None else dumps(error), "note": None}
    yield Statement("fill_steps", {"batch": batch, "state": state, **filled})


def _first_member(group_id: str) -> Operation[Sequence[Row]]:
    """The one child of a group, or the task that its workflow follows; nothing if it was deleted."""
    members = yield Statement("find_members", {"id": group_id, "after": FIRST, "limit": 1})
    return members or (yield Statement("find_followed", {"id": group_id}))


def _child(row: Row) -> dict[str, Any]:
    found = {name: row[name] for name in ("name", "state", "error", "attempts", "max_retries")}
    result = json_value(row["result"])
    shown = {"id": str(row["id"]), "kwargs": json_value(row["kwargs"])}
    return found | shown | {"result": None if result is None else result["value"]}


def _cancel_members(group_id: str, kind: str) -> Operation[None]:
    """Cancel what lives of a stopped group, a bounded number in each transaction."""
    after = FIRST
    while members := (yield Statement("find_members", {"id": group_id, "after": after, "limit": PAGE})):
        after = str(members[-1]["id"])
        lives = sorted(str(row["id"]) for row in members if row["lives"])
        if not lives:
            continue
        yield BEGIN
        stopped = [row for row in (yield Statement("lock_group", {"id": group_id})) if row["stopped_at"] is not None]
        if stopped:  # else its workflow was resumed meanwhile
            yield Statement("cancel_tasks", {"ids": dumps(lives)})
        yield COMMIT
    yield Statement("clear_group", {"id": group_id, "kind": kind})


def _remove_members(group_id: str, *, cancel: bool) -> Operation[None]:
    """Remove members of a group whose workflow was deleted, a bounded number in each transaction.

    What lives is cancelled first; if it runs, it is removed when it has ended, which leaves a tally.  Tasks that
    undo the workflow are not cancelled: from now on they are nobody's.
    """
    after, removed = FIRST, 0
    while removed < REMOVED and (
        members := (yield Statement("find_members", {"id": group_id, "after": after, "limit": PAGE}))
    ):
        after = str(members[-1]["id"])
        lives = sorted(str(row["id"]) for row in members if row["lives"])
        if cancel and lives:
            yield Statement("cancel_tasks", {"ids": dumps(lives)})
        page = sorted(str(row["id"]) for row in members)
        removed += len((yield Statement("delete_tasks", {"ids": dumps(page)})))
    yield BEGIN
    if (yield Statement("lock_group", {"id": group_id})):
        (left,) = yield Statement("look_at_members", {"id": group_id})
        if not left["ended"]:
            waits = cancel and left["lives"]
            yield Statement("clear_group" if waits else "drop_group", {"id": group_id, "kind": "gone"})
    yield COMMIT
