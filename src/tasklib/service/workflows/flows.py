"""Flows by name: tasks of any type, which run after others and take their results, stored together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from tasklib.core.task import NewTask
from tasklib.errors import ConfigurationError, InvalidArguments
from tasklib.queue.instrumentation import Sending, headers_from
from tasklib.queue.sync_async import operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import Addition, ServicePart
from tasklib.storage.operations.access.idempotency import Once, do_once
from tasklib.storage.operations.workflows.groups import store_flow
from tasklib.storage.statement import Operation, recall
from tasklib.submission import with_secrets
from tasklib.submission.flow_rows import FlowTask, RunIf, check_run_if, flow_rows, refuse_cycle


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A task of a flow; `options` are keywords of `TaskQueue.enqueue`."""

    ref: str
    """Its name in the flow, by which others say that they come after it."""
    name: str
    payload: Any
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    after: Sequence[str] = ()
    results: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments that are results, each with the node that gives it."""
    run_if: RunIf = "success"


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A task of a flow, as stored."""

    ref: str
    id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow that was stored."""

    tasks: Sequence[StoredNode]
    repeated: bool = False
    """Whether an earlier request with the same idempotency key stored it."""


@dataclass(frozen=True, slots=True)
class OnceOnly:
    """The idempotency key of a caller, and what its request was."""

    identity: str
    key: str
    fingerprint: str


class Flows(ServicePart):
    """Stores flows, all of their tasks or none."""

    async def asubmit(
        self,
        name: str,
        nodes: Sequence[FlowNode],
        *,
        once: OnceOnly | None = None,
        audit: AuditEntry | None = None,
    ) -> StoredFlow | None:
        """Store a flow; with `once` a single time, and None if the key was used for another request."""
        check_nodes(nodes)
        with ExitStack() as stack:
            sending = Sending(nodes[0].name, (), len(nodes))
            headers = headers_from(self.queue.senders, sending, stack) if self.queue.senders else {}
            return await self._asubmit(name, nodes, headers, once, audit)

    @operation
    def _submit(
        self,
        name: str,
        nodes: Sequence[FlowNode],
        headers: Mapping[str, Any],
        once: OnceOnly | None,
        audit: AuditEntry | None,
    ) -> Operation[StoredFlow | None]:
        yield from self.queue.secret_places.learn()
        memory = yield from recall()
        if "new" not in memory:  # the same ids, whenever the call is repeated
            memory["new"] = {node.ref: self._new(node, headers) for node in nodes}
        new: Mapping[str, NewTask] = memory["new"]
        stored = [StoredNode(node.ref, new[node.ref].id, node.name) for node in nodes]
        if "rows" not in memory:
            memory["rows"] = flow_rows(name, [_flow_task(node, new) for node in nodes])
        rows = memory["rows"]
        store = partial(store_flow, rows.tasks, rows.after, rows.edges)
        if once is None:
            yield from self.audited(store(), audit, lambda _: {"ids": [str(each.id) for each in stored]})
            return StoredFlow(stored)

        def work() -> Operation[Any]:
            yield from store()
            return [[each.ref, str(each.id), each.name] for each in stored]

        doing = do_once(once.identity, once.key, once.fingerprint, work)
        done = yield from self.audited(doing, audit, _changed)
        if done.answer is None:
            return None
        return StoredFlow([StoredNode(ref, UUID(id), name) for ref, id, name in done.answer], done.repeated)

    _asubmit = _submit.as_async

    def _new(self, node: FlowNode, headers: Mapping[str, Any]) -> NewTask:
        options = dict(node.options)
        if headers:
            options["headers"] = {**options.get("headers", {}), **headers}
        new = self.queue.new_by_name(node.name, node.payload, is_complete=not node.results, **options)
        return with_secrets(new, self.queue.secret_places.of(node.name))


def check_nodes(nodes: Sequence[FlowNode]) -> None:
    """Refuse nodes of one name, circles, and results that cannot be arguments."""
    refs = set[str]()
    for node in nodes:
        if node.ref in refs:
            raise ConfigurationError(f"two nodes have the ref {node.ref!r}; each needs its own")
        refs.add(node.ref)
        check_run_if(node.ref, node.run_if, has_before=bool(node.after or node.results))
    refuse_cycle({node.ref: [*node.after, *node.results.values()] for node in nodes})
    for node in nodes:
        if node.results and not isinstance(node.payload, Mapping):
            problem = f"node {node.ref!r} takes results as arguments, so its payload must be an object"
            raise InvalidArguments(node.name, [problem])
        both = [param for param in node.results if param in node.payload] if node.results else []
        if both:
            raise InvalidArguments(node.name, [f"node {node.ref!r} has {both[0]!r} in its payload and in its results"])


def _flow_task(node: FlowNode, new: Mapping[str, NewTask]) -> FlowTask:
    before: list[tuple[NewTask, str | None]] = [(new[ref], param) for param, ref in node.results.items()]
    before += [(new[ref], None) for ref in node.after]
    return FlowTask(new[node.ref], before, node.run_if)


def _changed(once: Once) -> Addition:
    return None if once.repeated or once.answer is None else {"ids": [each[1] for each in once.answer]}
