"""Flows and budgets: tasks that run after others, submitted together; tokens that anybody may spend."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BeforeValidator, Field, model_validator

from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.admission.authorization import allow_submission, require
from tasklib.http.errors import Refused
from tasklib.http.parts import Service, parts_of
from tasklib.http.routes.tasks import IdempotencyKey
from tasklib.http.schemas.fields import Answer, Input, Moment, Name, Text, TypeName, check_number
from tasklib.http.schemas.inputs import TaskOptions
from tasklib.http.schemas.workers import StepKey, Version
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.http_workers.recording import Attempt
from tasklib.service.workflows.flows import FlowNode, OnceOnly

router = APIRouter(prefix="/api", tags=["workflows"], route_class=AuditedRoute)

MAX_NODES = 10_000
Ref = Annotated[Text, Field(max_length=200)]
Refs = Annotated[list[Ref], Field(max_length=MAX_NODES)]


class NodeOptions(TaskOptions):
    """How a task of a flow is to be run."""

    run_after: Moment | None = None
    expires_at: Moment | None = None

    def submission(self) -> dict[str, Any]:
        """The same as keywords of `TaskQueue.enqueue`."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class NodeInput(Input):
    """A task of a flow."""

    ref: Ref = Field(description="Its name in the flow.")
    type: Name
    payload: Any = Field(default_factory=dict)
    after: Refs = Field(default_factory=list, description="The refs of tasks that must have ended before.")
    results: dict[str, Ref] = Field(
        default_factory=dict, description="Arguments that are results of others: the argument's name, and their ref."
    )
    run_if: Literal["success", "failure", "end"] = "success"
    options: NodeOptions = NodeOptions()


class FlowInput(Input):
    """Tasks that run after others, submitted together."""

    name: Annotated[Text, Field(max_length=200)]
    nodes: Annotated[list[NodeInput], Field(min_length=1, max_length=MAX_NODES)]


class FlowTask(Answer):
    """A task of a flow that was accepted."""

    ref: str
    id: UUID
    type: TypeName


class FlowCreated(Answer):
    """A flow that was accepted; its tasks in the order in which they were sent."""

    name: str
    tasks: list[FlowTask]


class SpendInput(Input):
    """How many tokens to take; for a task, as a recorded step of it."""

    cost: Annotated[float, BeforeValidator(check_number), Field(ge=0, lt=1e15)]
    task_id: UUID | None = Field(None, description="The task that spends; it must be held by a worker of the caller.")
    version: Version | None = None
    key: StepKey | None = Field(None, description="The key of the step; the budget's name if left out.")

    @model_validator(mode="after")
    def _whole(self) -> SpendInput:
        if (self.task_id is None) != (self.version is None):
            raise ValueError("taskId and version belong together")
        return self


class Spent(Answer):
    """Whether the tokens were taken; if not, how many are missing, and when there can be enough."""

    spent: bool
    short: float
    seconds: float


@router.post("/flows", status_code=201, response_model=FlowCreated, **needs(Permission.SUBMIT, 400, 409, 413, 429))
async def create_flow(
    body: FlowInput, request: Request, service: Service, idempotency_key: IdempotencyKey = None
) -> Response:
    """Submit a flow, all of its tasks or none; one that could never end, because of a cycle, is refused."""
    allow_submission(request, len(body.nodes))
    nodes = [
        FlowNode(
            *(node.ref, node.type, node.payload, node.options.submission()),
            after=node.after,
            results=node.results,
            run_if=node.run_if,
        )
        for node in body.nodes
    ]
    once = None
    if idempotency_key is not None:
        text = json.dumps(body.model_dump(mode="json"), sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
        once = OnceOnly(principal_of(request).identity, idempotency_key, fingerprint)
    stored = await service.flows.asubmit(body.name, nodes, once=once, audit=audit_of(request, flow=body.name))
    if stored is None:
        detail = f"the key {idempotency_key!r} was used for another request; use a new one for each request"
        raise Refused(409, "idempotency-conflict", detail)
    made = FlowCreated(name=body.name, tasks=[FlowTask.of(each) for each in stored.tasks])
    headers = {"Idempotent-Replayed": "true"} if stored.repeated else None
    return Response(made.model_dump_json(by_alias=True), 201, headers, "application/json")


@router.post("/budgets/{name:tasklib_name}/spend", response_model=Spent, **needs(Permission.EMIT, 400, 404, 409))
async def spend(name: str, body: SpendInput, request: Request, service: Service) -> Response:
    """Take tokens from a budget.  202: there are not enough; `seconds` and Retry-After say when there can be."""
    if body.task_id is not None and body.version is not None:
        require(request, Permission.WORK, "this: only the worker that holds a task spends for it")
        attempt = Attempt(body.task_id, body.version, principal_of(request).identity)
        taken = await parts_of(request).recording.aspend(attempt, body.key or name, name, body.cost)
        request.state.is_in_log = True  # it is in the task's own steps
    else:
        require(request, Permission.OPERATE, "this without a task; a worker names taskId and version of one it holds")
        taken = await service.workflows.aspend(name, body.cost, audit=audit_of(request, budget=name, cost=body.cost))
    answer = Spent(spent=taken.taken, short=taken.short, seconds=taken.seconds)
    headers = None if taken.taken else {"Retry-After": str(math.ceil(taken.seconds))}
    return Response(answer.model_dump_json(by_alias=True), 200 if taken.taken else 202, headers, "application/json")
