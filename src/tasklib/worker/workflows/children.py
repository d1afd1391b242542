"""The logic of children: they are stored once and waited for without a slot, and their results are returned."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self
from uuid import UUID

from tasklib.core.calls.groups import Group
from tasklib.core.calls.steps import StepOptions
from tasklib.core.codec import dumps
from tasklib.core.member_ids import member_id, new_group_id
from tasklib.core.numbers import is_whole
from tasklib.core.task import NewTask, TaskState
from tasklib.errors import ConfigurationError, TaskFailed, WaitTimeout, seconds_of
from tasklib.queue.groups import StoredResults
from tasklib.storage.operations.workflows.groups import rows_of
from tasklib.submission.function import BoundTask, Submitter
from tasklib.worker.workflows.effects import Logic, Request, Suspend
from tasklib.worker.workflows.history import History
from tasklib.worker.workflows.records import ValueType, digest_of, return_annotation
from tasklib.worker.workflows.undo import undo_of

CHUNK: Final = 1000
"""How many children one request stores."""


@dataclass(frozen=True, slots=True)
class ChildrenStep:
    """A step that waits for children."""

    key: str
    number: int
    kind: str
    """`run`, `map` or `flow`."""
    name: str
    """What the children are called: the name of their task, or of the flow."""
    seconds: float | None
    """How long to wait for them; None without an end."""
    undo: Mapping[str, Any] | None

    @property
    def patience(self) -> dict[str, Any]:
        """How long to wait for them from now on, if the step was opened again."""
        return {"key": self.key, "seconds": self.seconds}


class ChildLogic(History):
    """Children of a workflow."""

    def run(self, options: StepOptions, call: Any, timeout_seconds: float | None) -> Logic[Any]:
        """Run a task as a child."""
        if not isinstance(call, BoundTask):
            raise ConfigurationError(f"ctx.run takes task.bind(...) or a flow, got {call!r}")
        bound: BoundTask[Any] = call
        if bound.results:
            raise ConfigurationError("node.result is for tasks of a flow: flow.add(task.bind(node.result))")
        if bound.new.unique_key is not None and bound.new.on_conflict != "return":
            raise ConfigurationError(
                f"task {bound.new.name!r} has on_conflict={bound.new.on_conflict!r}, and ctx.run follows the task that "
                "holds its unique key; leave on_conflict out"
            )
        step = self._begin_children("run", options, bound.new.name, timeout_seconds)
        return self._run(step, bound)

    def map(
        self,
        options: StepOptions,
        task: Any,
        inputs: Iterable[Mapping[str, Any]],
        max_failures: int | None,
        timeout_seconds: float | None,
    ) -> Logic[Any]:
        """Run a task for each input."""
        if not isinstance(task, Submitter):
            raise ConfigurationError(f"ctx.map takes a task and its inputs, got {task!r}")
        if not isinstance(inputs, Iterable):
            raise ConfigurationError(f"ctx.map takes mappings of arguments, one for each child, got {inputs!r}")
        if max_failures is not None and not (is_whole(max_failures) and max_failures >= 0):
            raise ConfigurationError(f"max_failures is a whole number, 0 or more, or None, got {max_failures!r}")
        submitter: Submitter[Any, Any] = task
        step = self._begin_children("map", options, submitter.definition.name, timeout_seconds)
        return self._map(step, submitter, inputs, max_failures)

    def _begin_children(
        self, kind: str, options: StepOptions, name: str, timeout_seconds: float | None
    ) -> ChildrenStep:
        """The step that children of this name are, under a key that is taken now."""
        seconds = None if timeout_seconds is None else seconds_of(timeout_seconds)
        undo = undo_of(options, self.context.task.priority)
        key, number = self._take_key(options.name or name, options)
        return ChildrenStep(key, number, kind, name, seconds, undo)

    def _open_group(
        self,
        step: ChildrenStep,
        group: str,
        *,
        digest: str | None = None,
        sealed: bool = True,
        max_failures: int | None = None,
        **stored: Any,
    ) -> Logic[None]:
        """Record the open step together with its group, and with the children that are stored at once."""
        row = self._row(step.key, step.number, step.kind, digest, 0)
        row |= {"until_in": step.seconds, "value": {"group": group}, "undo": step.undo}
        opened = {"id": group, "sealed": sealed, "max_failures": max_failures}
        yield Request("open_group", {"step": self._finished(row, self._timing.monotonic()), "group": opened, **stored})
        self._remember(row)

    def _run(self, step: ChildrenStep, call: BoundTask[Any]) -> Logic[Any]:
        digest = digest_of(call.submitter.definition.function, (), {"kwargs": call.new.kwargs})
        found = yield from self._find(step.key, "run", digest)
        values = ValueType(
            f"task {call.new.name!r}", return_annotation(call.submitter.definition.function), self._max_value_bytes
        )
        if found is not None and found.state != "open":
            return self._ended_child(step.key, found.state, found.value, found.error, values)
        group = str(new_group_id()) if found is None else found.value["group"]
        rows = rows_of([self._child(call.new, group, 0)])
        if found is None:
            yield from self._open_group(step, group, digest=digest, rows=rows)
        else:
            yield Request("restart_children", {"group": group, "rows": rows, "patience": step.patience})
        answer = yield from self._await_children(step)
        return self._ended_child(step.key, answer["state"], answer["value"], answer["error"], values)

    def _map(
        self,
        step: ChildrenStep,
        task: Submitter[Any, Any],
        inputs: Iterable[Mapping[str, Any]],
        max_failures: int | None,
    ) -> Logic[Group[Any]]:
        found = yield from self._find(step.key, "map", None)
        if found is None:
            group = str(new_group_id())
            yield from self._open_group(step, group, sealed=False, max_failures=max_failures, rows=[])
        elif found.state != "open":
            return self._group(step.key, found.state, found.value, found.error, task)
        else:
            group = found.value["group"]
            yield Request("restart_children", {"group": group, "patience": step.patience})
        stored = yield Request("look_at_group", {"group": group})
        if not stored["sealed"]:
            yield from self._store_children(step.key, group, stored, task, inputs)
            yield Request("seal_group", {"group": group})
        answer = yield from self._await_children(step)
        return self._group(step.key, answer["state"], answer["value"], answer["error"], task)

    def _store_children(
        self,
        key: str,
        group: str,
        stored: Mapping[str, Any],
        task: Submitter[Any, Any],
        inputs: Iterable[Mapping[str, Any]],
    ) -> Logic[None]:
        """Store children chunk by chunk, after those that an earlier attempt has stored of the same inputs."""
        index, before = 0, stored["total"]
        rows, seen = iter(inputs), InputDigest()
        while chunk := list(itertools.islice(rows, min(CHUNK, before - index) if index < before else CHUNK)):
            new = [
                self._child(_without_key(task.bind_row(position, row)), group, position)
                for position, row in enumerate(chunk, index)
            ]
            digest = seen.after(new)
            if index >= before:
                more = {"before": index, "rows": rows_of(new), "digest": digest}
                total = yield Request("add_members", {"group": group, **more})
                if total != index + len(chunk):
                    raise self._mismatch(key, f"a map with {total:,} inputs", f"one with {index + len(chunk):,}")
            index += len(chunk)
            if index == before and digest != stored["digest"]:
                recorded = f"a map whose first {before:,} inputs were others"
                raise self._mismatch(key, recorded, "inputs that must be the same, in the same order, in every run")
        if index < before:
            raise self._mismatch(key, f"a map with {before:,} inputs or more", f"one with {index:,}")

    def _await_children(self, step: ChildrenStep) -> Logic[dict[str, Any]]:
        answer: dict[str, Any] = yield Request("take", {"key": step.key, "events": []})
        if answer["state"] == "open":
            yield Suspend(f"children {step.name}", step.key, answer["left"], fillable=True)
        names = {each: answer[each] for each in ("state", "value", "error")}
        self._remember(self._row(step.key, step.number, step.kind, None, 0) | names)
        return answer

    def _child(self, new: NewTask, group: str, index: int) -> NewTask:
        """The child as it is stored: with an id that a repeated request gives again, and its parent's priority."""
        priority = new.priority or self.context.task.priority
        return replace(new, id=member_id(UUID(group), index), priority=priority)

    @staticmethod
    def _ended_child(key: str, state: str, value: Any, error: Mapping[str, Any] | None, values: ValueType) -> Any:
        if state == "done":
            return values.read(value.get("result"))
        raise not_completed(key, error or {})

    def _group(
        self, key: str, state: str, value: Any, error: Mapping[str, Any] | None, task: Submitter[Any, Any]
    ) -> Group[Any]:
        if state != "done":
            raise not_completed(key, error or {})
        values = ValueType(f"task {task.definition.name!r}", return_annotation(task.definition.function), None)
        return self._ended_group(value, values.read)

    def _ended_group(self, value: Mapping[str, Any], read: Callable[[Any], Any]) -> Group[Any]:
        assert self.storage is not None
        counts = {name: value[name] for name in ("total", "failed", "cancelled")}
        return Group(value["group"], **counts, results=StoredResults.of(self.storage, read))


class InputDigest:
    """A hash of all inputs of a map so far, however they are divided into chunks."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=12)

    def after(self, new: Sequence[NewTask]) -> str:
        """The hash after these too."""
        self._hash.update(dumps([each.kwargs for each in new])[1:-1].encode() + b",")
        return self._hash.hexdigest()


def not_completed(key: str, error: Mapping[str, Any]) -> Exception:
    """The error for children that did not complete."""
    if error.get("type") == "WaitTimeout":
        return WaitTimeout(None, 0.0, "waiting", step=key)
    child = error.get("child")
    ended = EndedChild.recorded(child) if child else EndedChild(name=key, error=error.get("message", ""))
    failed = TaskFailed(ended, is_group=not child)
    failed.step = key
    return failed


def _without_key(new: NewTask) -> NewTask:
    if new.unique_key is not None:
        raise ConfigurationError(
            f"task {new.name!r} has the unique key {new.unique_key!r}, and children of ctx.map have none; leave the "
            "key out, or run them one by one with ctx.run, which follows the task that holds the key"
        )
    return new


@dataclass(frozen=True, slots=True)
class EndedChild:
    """A child that did not complete, as it was recorded."""

    name: str
    error: str | None = None
    id: Any = None
    state: str = TaskState.FAILED
    kwargs: Any = None
    attempts: int = 0
    max_retries: int = 0
    result: Any = None

    @classmethod
    def recorded(cls, child: Mapping[str, Any]) -> Self:
        """The child with its id and its state as a `Task` has them; `deleted` is no state of a task."""
        task_id, state = child.get("id"), child["state"]
        known = TaskState(state) if state in set(TaskState) else state
        given: dict[str, Any] = {**child, "id": None if task_id is None else UUID(task_id), "state": known}
        return cls(**given)

    @property
    def payload(self) -> Any:
        """The same as `kwargs`."""
        return self.kwargs

    @property
    def max_attempts(self) -> int:
        """How many attempts it could have had."""
        return self.max_retries + 1
