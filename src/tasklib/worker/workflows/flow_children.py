"""The logic of a flow that runs as a child: stored once with all its tasks, waited for without a slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklib.core.calls.groups import Group
from tasklib.core.calls.steps import StepOptions
from tasklib.core.member_ids import new_group_id
from tasklib.errors import seconds_of
from tasklib.queue.methods.flows import Flow
from tasklib.worker.workflows.children import ChildLogic, not_completed, patience
from tasklib.worker.workflows.effects import Ask, Logic
from tasklib.worker.workflows.undo import undo_of


class FlowLogic(ChildLogic):
    """Children of a workflow, flows among them."""

    def run(self, options: StepOptions, call: Any, timeout_seconds: float | None) -> Logic[Any]:
        """Run a task, or a flow, as a child."""
        if not isinstance(call, Flow):
            return super().run(options, call, timeout_seconds)
        seconds = None if timeout_seconds is None else seconds_of(timeout_seconds)
        undo = undo_of(options, self.context.task.priority)
        call.require_tasks()
        key, number = self._take_key(options.name or call.name, options)
        return self._flow(key, number, call, seconds, undo)

    def _flow(
        self, key: str, number: int, flow: Flow, seconds: float | None, undo: Mapping[str, Any] | None
    ) -> Logic[Group[Any]]:
        found = yield from self._find(key, "flow", None)
        if found is None:
            group = str(new_group_id())
            row = self._row(key, number, "flow", None, 0)
            row |= {"until_in": seconds, "value": {"group": group}, "undo": undo}
            opened = {"id": group, "sealed": True, "max_failures": None}
            step = self._finished(row, self._timing.monotonic())
            stored = flow.as_children(group, self.context.task.priority)
            graph = {"after": list(stored.after), "edges": list(stored.edges)}
            yield Ask("open_group", {"step": step, "group": opened, "rows": list(stored.tasks), **graph})
            self._remember(row)
        elif found.state != "open":
            return self._ended_flow(key, found.state, found.value, found.error)
        else:
            yield Ask("restart_children", {"group": found.value["group"], **patience(key, seconds)})
        answer = yield from self._await_children(key, number, "flow", flow.name)
        return self._ended_flow(key, answer["state"], answer["value"], answer["error"])

    def _ended_flow(self, key: str, state: str, value: Any, error: Mapping[str, Any] | None) -> Group[Any]:
        if state != "done":
            raise not_completed(key, error or {})
        return self._ended_group(value, lambda result: result)
