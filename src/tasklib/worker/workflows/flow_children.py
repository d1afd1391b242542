"""The logic of a flow that runs as a child: stored once with all its tasks, waited for without a slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklib.core.calls.groups import Group
from tasklib.core.calls.steps import StepOptions
from tasklib.core.member_ids import new_group_id
from tasklib.queue.methods.flows import Flow
from tasklib.worker.workflows.children import ChildLogic, ChildrenStep, not_completed
from tasklib.worker.workflows.effects import Logic, Request


class FlowLogic(ChildLogic):
    """Children of a workflow, flows among them."""

    def run(self, options: StepOptions, call: Any, timeout_seconds: float | None) -> Logic[Any]:
        """Run a task, or a flow, as a child."""
        if not isinstance(call, Flow):
            return super().run(options, call, timeout_seconds)
        call.require_tasks()
        return self._flow(self._begin_children("flow", options, call.name, timeout_seconds), call)

    def _flow(self, step: ChildrenStep, flow: Flow) -> Logic[Group[Any]]:
        found = yield from self._find(step.key, "flow", None)
        if found is None:
            group = str(new_group_id())
            stored = flow.as_children(group, self.context.task.priority)
            rows, after, edges = map(list, (stored.tasks, stored.after, stored.edges))
            yield from self._open_group(step, group, rows=rows, after=after, edges=edges)
        elif found.state != "open":
            return self._ended_flow(step.key, found.state, found.value, found.error)
        else:
            yield Request("restart_children", {"group": found.value["group"], "patience": step.patience})
        answer = yield from self._await_children(step)
        return self._ended_flow(step.key, answer["state"], answer["value"], answer["error"])

    def _ended_flow(self, key: str, state: str, value: Any, error: Mapping[str, Any] | None) -> Group[Any]:
        if state != "done":
            raise not_completed(key, error or {})
        return self._ended_group(value, lambda result: result)
