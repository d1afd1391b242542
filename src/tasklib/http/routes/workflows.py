"""Workflows: steps, children and questions of tasks; emitting events and answering questions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field

from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.parts import Service, parts_of
from tasklib.http.schemas.fields import Answer, Input, Text
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.queue import require_id
from tasklib.service.service import as_data

router = APIRouter(prefix="/api", tags=["workflows"], route_class=AuditedRoute)
AnyJson = Annotated[Any, BeforeValidator(as_data)]


class Step(Answer):
    """A recorded step of a task."""

    key: str
    number: int
    kind: str = Field(description="`step`, `sleep`, `wait`, `ask`, `run`, `map`, `flow` or `spend`.")
    state: str = Field(description="`open`, `done` or `failed`.")
    value: AnyJson
    error: AnyJson
    question: str | None
    tries: int
    note: str | None
    started_at: datetime | None
    ended_at: datetime | None
    until: datetime | None
    undo: str | None = Field(description="The type of the task that undoes it if the workflow ends without success.")


class Steps(Answer):
    """The records of a task, in order."""

    steps: list[Step]


class TimelineItem(Answer):
    """One thing that happened to a task, or goes on."""

    kind: str = Field(description="`submitted`, `attempt`, `ended`, or the kind of a step.")
    at: datetime
    ended_at: datetime | None = Field(description="Null while it goes on.")
    state: str = Field(description="Of a step `open`, `done`, `failed`; of an attempt its outcome, or `running`.")
    key: str | None = Field(description="The step's key.")
    number: int | None = Field(description="Which attempt it is, or which step.")
    text: str | None = Field(description="The error, or the question.")
    note: str | None = Field(description="What was odd about a step, or which event or person filled it.")
    worker_id: str | None
    until: datetime | None = Field(description="The end of a sleep, or when a wait gives up.")
    tries: int | None
    undo: str | None = Field(
        description="The type of the task that undoes the step if the workflow ends without success."
    )


class Timeline(Answer):
    """Everything that has happened to a task, the earliest first."""

    id: UUID
    entries: list[TimelineItem]


class Related(Answer):
    """A task that is before or below another."""

    id: UUID
    type: str
    status: str
    param: str | None = None


class Children(Answer):
    """Children that a task has waited for; the first hundred are named."""

    key: str
    kind: str
    total: int
    ended: int
    failed: int
    cancelled: int
    sealed: bool = Field(description="Whether no more will come.")
    children: list[Related]


class Tree(Answer):
    """The parent of a task, the tasks before it in its flow, and its children."""

    id: UUID
    type: str
    status: str
    waits_for: str | None
    parent: Related | None = Field(description="The workflow whose child it is.")
    before: list[Related]
    groups: list[Children]


class Question(Answer):
    """A question that a task asks a person."""

    task_id: UUID
    type: str = Field(validation_alias="task_name")
    key: str
    question: str
    answer_schema: AnyJson = Field(validation_alias="schema", description="What an answer looks like, as JSON Schema.")
    asked_at: datetime | None
    until: datetime | None


class QuestionsQuery(Input):
    """How many."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class Questions(Answer):
    """Open questions, the oldest first."""

    questions: list[Question]


class EventInput(Input):
    """An event to emit."""

    name: Annotated[Text, Field(max_length=200)]
    payload: Any = None


class Emitted(Answer):
    """Whether the event is new: for a fact, only the first event counts."""

    new: bool


class AnswerInput(Input):
    """An answer to a question."""

    value: Any


class Answered(Answer):
    """The question is answered."""

    answered: bool = True


@router.get("/tasks/{task_id}/steps", **needs(Permission.READ, 404))
async def list_steps(task_id: str, service: Service) -> Steps:
    """Everything that a task has recorded."""
    return Steps(steps=[Step.of(step) for step in await service.workflows.asteps(task_id)])


@router.get("/tasks/{task_id}/tree", **needs(Permission.READ, 404))
async def show_tree(task_id: str, service: Service) -> Tree:
    """The tasks before a task in its flow, and the children it has waited for."""
    found = await service.workflows.atree(task_id)
    groups = [
        Children.model_validate({**group, "children": [_related(child) for child in group["children"]]})
        for group in found["groups"]
    ]
    return Tree(
        id=found["id"],
        type=found["name"],
        status=found["state"],
        waits_for=found["waits_for"],
        parent=None if found["parent"] is None else _related(found["parent"]),
        before=[_related(each) for each in found["before"]],
        groups=groups,
    )


@router.get("/tasks/{task_id}/timeline", **needs(Permission.READ, 404))
async def show_timeline(task_id: str, service: Service) -> Timeline:
    """Attempts, steps, waits and notes of a task, in order."""
    entries = await service.workflows.atimeline(task_id)
    return Timeline(id=UUID(task_id), entries=[TimelineItem.of(each) for each in entries])


@router.get("/questions", **needs(Permission.READ, 400))
async def list_questions(query: Annotated[QuestionsQuery, Query()], service: Service) -> Questions:
    """Questions that tasks ask people, the oldest first."""
    found = await service.workflows.aquestions(limit=query.limit)
    return Questions(questions=[Question.model_validate(each) for each in found])


@router.post("/events", status_code=201, **needs(Permission.OPERATE, 400, 413))
async def emit(body: EventInput, request: Request, service: Service) -> Emitted:
    """Emit a fact to every task that waits for it, now or later; only the first of its name counts."""
    by = principal_of(request).name
    new = await service.workflows.aemit(body.name, body.payload, by=by, audit=audit_of(request, name=body.name))
    await service.workflows.adeliver()
    return Emitted(new=new)


@router.delete("/events/{name:path}", **needs(Permission.OPERATE, 400))
async def withdraw(name: str, request: Request, service: Service) -> Emitted:
    """Forget a fact; `new` says whether there was one."""
    return Emitted(new=await service.workflows.awithdraw(name, audit=audit_of(request, name=name)))


@router.post("/tasks/{task_id}/events", status_code=201, **needs(Permission.EMIT, 400, 404, 409, 413))
async def emit_to(task_id: str, body: EventInput, request: Request, service: Service) -> Emitted:
    """Send a message to one task, which takes each once, in order; a worker to one that it holds."""
    await _allow(request, task_id)
    by, audit = principal_of(request).name, audit_of(request, name=body.name)
    new = await service.workflows.aemit(body.name, body.payload, to=task_id, by=by, audit=audit)
    await service.workflows.adeliver()
    return Emitted(new=new)


@router.post("/tasks/{task_id}/answers/{key:path}", **needs(Permission.EMIT, 400, 404, 409, 413))
async def answer(task_id: str, key: str, body: AnswerInput, request: Request, service: Service) -> Answered:
    """Answer a question that a task asks; the first answer counts."""
    await _allow(request, task_id)
    by = principal_of(request).name
    await service.workflows.aanswer(task_id, key, body.value, by=by, audit=audit_of(request, key=key))
    return Answered()


async def _allow(request: Request, task_id: str) -> None:
    """Refuse a caller that may neither operate nor holds the task with one of its workers."""
    who = principal_of(request)
    if not who.may(Permission.OPERATE):
        await parts_of(request).recording.arequire_holding(require_id(task_id), who.identity)


def _related(found: dict[str, Any]) -> Related:
    return Related(id=found["id"], type=found["name"], status=found["state"], param=found.get("param"))
