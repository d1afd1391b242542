"""Flows as rows: tasks, and which are before which; a flow that could never end is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from uuid import uuid5

from tasklib.core.task import NewTask
from tasklib.errors import ConfigurationError
from tasklib.storage.operations.workflows.groups import rows_of
from tasklib.storage.operations.workflows.marks import BEFORE

RunIf = Literal["success", "failure", "end"]
RUN_IF: Final = ("success", "failure", "end")
MOST_NODES: Final = 100_000


@dataclass(frozen=True, slots=True)
class FlowTask:
    """A task of a flow."""

    new: NewTask
    before: Sequence[tuple[NewTask, str | None]] = ()
    """What is before it, each with the argument that its result becomes."""
    run_if: RunIf = "success"


@dataclass(frozen=True, slots=True)
class FlowRows:
    """A flow as it is stored."""

    tasks: Sequence[Mapping[str, Any]]
    after: Sequence[Mapping[str, Any]]
    """What each task waits for, as a group."""
    edges: Sequence[Mapping[str, Any]]


def flow_rows(name: str, nodes: Sequence[FlowTask]) -> FlowRows:
    """The rows of a flow; tasks get the flow's name as a tag, and those with something before them wait for it."""
    needed = {each.id for node in nodes for each, _ in node.before}
    rows: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for node in nodes:
        (row,) = rows_of([replace(node.new, tags={"flow": name, **node.new.tags})])
        row["marks"] = BEFORE if node.new.id in needed else 0
        if node.before:
            group = str(uuid5(node.new.id, "after"))  # the same one, however often the flow is submitted
            names = ", ".join(dict.fromkeys(each.name for each, _ in node.before))
            row["waits_for"] = f"prerequisites {names}"[:200]
            distinct = len({each.id for each, _ in node.before})
            after.append({"id": group, "task_id": str(node.new.id), "total": distinct, "run_if": node.run_if})
            edges += [
                {"task_id": str(each.id), "group_id": group, "param": param, "number": number}
                for number, (each, param) in enumerate(node.before)
            ]
        rows.append(row)
    return FlowRows(rows, after, edges)


def check_run_if(name: str, run_if: RunIf, *, has_before: bool) -> None:
    """Refuse a task that runs if something before it fails, and has nothing before it."""
    if run_if == "failure" and not has_before:
        raise ConfigurationError(
            f"{name!r} runs if something before it fails, and nothing is before it; say what, with after="
        )


def refuse_cycle(before: Mapping[str, Sequence[str]]) -> None:
    """Refuse nodes that wait for each other in a circle, or for one that is not there, by their names."""
    for ref, others in before.items():
        for other in others:
            if other not in before:
                raise ConfigurationError(f"node {ref!r} comes after {other!r}, and the flow has no node of that name")
    left = {ref: set(others) for ref, others in before.items()}
    followers: dict[str, list[str]] = {}
    for ref, waited in left.items():
        for other in waited:
            followers.setdefault(other, []).append(ref)
    free = [ref for ref, others in left.items() if not others]
    while free:
        done = free.pop()
        del left[done]
        for ref in followers.get(done, ()):
            left[ref].discard(done)
            if not left[ref]:
                free.append(ref)
    if left:
        raise ConfigurationError(f"the flow has a cycle, so that none of these could ever run: {_circle(left)}")


def _circle(left: Mapping[str, set[str]]) -> str:
    """One of the circles, as a text; every node that is left waits for another that is."""
    path: dict[str, None] = {}
    at = min(left)
    while at not in path:
        path[at] = None
        at = min(each for each in left[at] if each in left)
    nodes = list(path)
    shown = [*nodes[nodes.index(at) :], at]
    return " after ".join(shown[:20]) + (" …" if len(shown) > 20 else "")
