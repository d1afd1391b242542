"""Pauses and limits, for all tasks or those of one type; and what holds now."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tasklib.core.codec import number
from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.errors import Refused
from tasklib.http.parts import NOT_MODIFIED, Service, conditional
from tasklib.http.schemas.bounds import ListPage
from tasklib.http.schemas.fields import Answer, Input, Key, Name, Text, Whole, check_number
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.queue import TaskQueue
from tasklib.queue.arguments import SLOWEST_RATE, is_rate

Rate = Annotated[int | float, BeforeValidator(number)]

router = APIRouter(prefix="/api", tags=["control"], route_class=AuditedRoute)


class PauseInput(Input):
    """The type to pause, and why."""

    type: Name | None = None
    reason: Text | None = None


class ResumeInput(Input):
    """The type to resume."""

    type: Name | None = None


class Paused(Answer):
    """Whether tasks, of the type given or all, are paused now."""

    paused: bool


class PauseInfo(Answer):
    """Something that is paused; `type` is null for everything."""

    type: str | None = Field(validation_alias="name")
    since: datetime
    by: str | None
    reason: str | None


class RateLimit(Answer):
    """How many tasks may start in a second over all workers; 0 is unlimited."""

    tasks_per_second: int | float


def _check_rate(value: float) -> float:
    if not is_rate(value):
        raise ValueError(f"should be 0 or at least {SLOWEST_RATE:g}; to let none start, pause")
    return value


class RateLimitInput(Input):
    """How many tasks may start in a second, of one type or of all; 0 is unlimited."""

    tasks_per_second: Annotated[
        float, BeforeValidator(check_number), Field(ge=0, lt=1e9, examples=[10]), AfterValidator(_check_rate)
    ]
    type: Name | None = None


class ConcurrencyLimit(Answer):
    """How many tasks may run at once over all workers; 0 is unlimited."""

    max_running: int


class ConcurrencyInput(Input):
    """How many tasks may run at once, of one type or of all; 0 is unlimited."""

    max_running: Annotated[Whole, Field(ge=0)]
    type: Name | None = None


class KeyLimitInfo(Answer):
    """How many tasks of a concurrency key may run at once over all workers; 0 is unlimited."""

    key: str | None = Field(description="Null for every key without a limit of its own.")
    type: str | None = Field(
        validation_alias="name", description="The type that is counted separately; null for all others of a key."
    )
    max_running: int


class KeyLimitInput(Input):
    """How many tasks of a concurrency key may run at once; 0 is unlimited, null resets it to the default."""

    max_running: Annotated[Whole, Field(ge=0)] | None
    key: Key | None = None
    type: Name | None = None


class KeyLimits(Answer):
    """The limits of concurrency keys that were set, up to 1000; one task of a key runs at once where none is."""

    key_limits: list[KeyLimitInfo]


class LimitInfo(Answer):
    """A limit in force; `type` is null for the one over everything."""

    type: str | None = Field(validation_alias="name")
    tasks_per_second: Rate | None = Field(validation_alias="rate")
    burst: Rate | None = Field(
        description="Tasks that may start at once after a quiet time; null for one second's worth, at least one."
    )
    max_running: int | None


class BudgetInfo(Answer):
    """Tokens that workflows may spend over all workers."""

    name: str
    per_second: Rate = Field(validation_alias="rate", description="Tokens that come in a second.")
    burst: Rate = Field(description="Tokens that it holds at most.")
    tokens: float = Field(description="Tokens that can be spent right now.")


class Budgets(Answer):
    """Budgets, by name, up to 1000."""

    budgets: list[BudgetInfo]
    total: int = Field(description="How many there are.")


Tokens = Annotated[float, BeforeValidator(check_number), Field(gt=0, lt=1e9)]


class BudgetInput(Input):
    """How many tokens come in a minute or in a second, one of them, and how many are kept at most."""

    per_minute: Annotated[Tokens, Field(examples=[90000])] | None = None
    per_second: Tokens | None = None
    burst: Tokens | None = Field(None, description="What comes in that minute or second if it is left out.")

    @model_validator(mode="after")
    def _either(self) -> BudgetInput:
        if (self.per_minute is None) == (self.per_second is None):
            raise ValueError("needs either perMinute or perSecond, and not both")
        return self


class Control(Answer):
    """Current pauses and limits."""

    paused: bool
    pauses: list[PauseInfo]
    limits: list[LimitInfo]
    key_limits: list[KeyLimitInfo]


@router.post("/tasks/pause", **needs(Permission.OPERATE, 400))
async def pause(request: Request, service: Service, body: PauseInput | None = None) -> Paused:
    """Pause: no worker starts tasks until resumed; running ones finish."""
    body = body or PauseInput()
    audit = audit_of(request, type=body.type, reason=body.reason)
    by = principal_of(request).name
    await service.achange(audit, service.queue.pause, body.type, by=by, reason=body.reason)
    return Paused(paused=True)


@router.post("/tasks/resume", **needs(Permission.OPERATE, 400))
async def resume(request: Request, service: Service, body: ResumeInput | None = None) -> Paused:
    """Start tasks again."""
    kind = None if body is None else body.type
    await service.achange(audit_of(request, type=kind), service.queue.resume, kind)
    return Paused(paused=await service.queue.ais_paused(kind))


@router.post("/tasks/rate-limit", **needs(Permission.OPERATE, 400))
async def set_rate_limit(body: RateLimitInput, request: Request, service: Service) -> RateLimit:
    """Limit the tasks that start per second, across all workers."""
    audit = audit_of(request, type=body.type, tasksPerSecond=body.tasks_per_second)
    await service.achange(audit, service.queue.set_rate_limit, body.tasks_per_second, body.type)
    return RateLimit(tasks_per_second=number(await service.queue.aget_rate_limit(body.type)) or 0)


@router.post("/tasks/concurrency-limit", **needs(Permission.OPERATE, 400))
async def set_concurrency_limit(body: ConcurrencyInput, request: Request, service: Service) -> ConcurrencyLimit:
    """Limit the tasks that run at once, across all workers."""
    audit = audit_of(request, type=body.type, maxRunning=body.max_running)
    await service.achange(audit, service.queue.set_concurrency_limit, body.max_running, body.type)
    return ConcurrencyLimit(max_running=body.max_running)


@router.post("/tasks/key-limit", **needs(Permission.OPERATE, 400))
async def set_key_limit(body: KeyLimitInput, request: Request, service: Service) -> KeyLimits:
    """Limit the tasks of one concurrency key, or of each key, that run at once, across all workers."""
    audit = audit_of(request, key=body.key, type=body.type, maxRunning=body.max_running)
    await service.achange(audit, service.queue.set_key_limit, body.max_running, body.key, body.type)
    return KeyLimits(key_limits=await _key_limits(service.queue, ListPage()))


@router.get("/budgets", **needs(Permission.READ, 400))
async def list_budgets(query: Annotated[ListPage, Query()], service: Service) -> Budgets:
    """The budgets of workflows, by name, and what is left of each; up to 1000 at once."""
    found = await service.queue.abudgets()
    return Budgets(budgets=[BudgetInfo.of(each) for each in query.of(found)], total=len(found))


@router.put("/budgets/{name:tasklib_name}", **needs(Permission.OPERATE, 400, 413))
async def set_budget(name: str, body: BudgetInput, request: Request, service: Service) -> BudgetInfo:
    """Create a budget, which is full, or change the one of that name, which keeps what is left of it."""
    given = {"per_minute": body.per_minute, "per_second": body.per_second, "burst": body.burst}
    audit = audit_of(request, perMinute=body.per_minute, perSecond=body.per_second, burst=body.burst)
    await service.workflows.aset_budget(name, **given, audit=audit)
    return await _budget(service.queue, name)


@router.delete("/budgets/{name:tasklib_name}", status_code=204, **needs(Permission.OPERATE, 400, 404))
async def remove_budget(name: str, request: Request, service: Service) -> None:
    """Remove a budget; workflows that spend from it fail until there is one again."""
    await _budget(service.queue, name)
    await service.workflows.aset_budget(name, audit=audit_of(request))


@router.get("/control", response_model=Control, **needs(Permission.READ, 400, also=NOT_MODIFIED))
async def get_control(query: Annotated[ListPage, Query()], request: Request, service: Service) -> Response:
    """Pauses with their author and reason, and limits; up to 1000 of each, and `offset` gives the next page."""
    queue = service.queue
    pauses, limits = await queue.apauses(), await queue.alimits()
    control = Control(
        paused=any(each.name is None for each in pauses),
        pauses=[PauseInfo.of(each) for each in query.of(pauses)],
        limits=[LimitInfo.of(each) for each in query.of(limits)],
        key_limits=await _key_limits(queue, query),
    )
    return conditional(request, control)


async def _budget(queue: TaskQueue, name: str) -> BudgetInfo:
    for each in await queue.abudgets():
        if each.name == name:
            return BudgetInfo.of(each)
    raise Refused(404, "budget-not-found", f"there is no budget {name!r}; GET /api/budgets lists them")


async def _key_limits(queue: TaskQueue, page: ListPage) -> list[KeyLimitInfo]:
    return [KeyLimitInfo.of(each) for each in page.of(await queue.akey_limits())]
