"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Response

from tasklib.http.errors import problems
from tasklib.http.parts import Counts, Service
from tasklib.http.schemas.bounds import MOST_NAMES, busiest, summed
from tasklib.http.schemas.tasks import status_of
from tasklib.http.security.audit import AuditedRoute
from tasklib.http.security.auth import Permission, needs
from tasklib.service.statistics import TypeInfo

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("pending", "delayed", "running", "completed", "failed", "retrying", "cancelled", "buried")

router = APIRouter(tags=["health"], route_class=AuditedRoute)

Sample = tuple[Mapping[str, str], float]


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(401, 403, 503),
    },
    **needs(Permission.READ),
)
async def get_metrics(service: Service, counts: Counts) -> Response:
    """Tasks by type and status, workers, pauses and limits."""
    stats = await counts.stats()
    known = await service.statistics.atypes(stats)
    named = {each.name: each for each in known}
    chosen = set(busiest(named, lambda name: _counts(named[name])))
    types, others = [each for each in known if each.name in chosen], [each for each in known if each.name not in chosen]
    overview = await service.statistics.aoverview(stats)
    limits = await service.queue.alimits()
    lines = [
        *_metric("tasklib_tasks", "Tasks by type and status; without a type, of all others.", _tasks(types, others)),
        *_metric("tasklib_types", "Types that are stored or that a worker knows.", [({}, len(known))]),
        *_metric("tasklib_workers", "Workers that are alive.", [({}, overview.workers_alive)]),
        *_metric(
            "tasklib_type_workers", "Live workers that know the type.", [({"type": t.name}, t.workers) for t in types]
        ),
        *_metric(
            "tasklib_paused", "1 while tasks of the type may not start.", [({"type": t.name}, t.paused) for t in types]
        ),
        *_metric(
            "tasklib_rate_limit",
            "Tasks that may start in a second; without a type, of all.",
            [({"type": each.name or ""}, each.rate) for each in limits if each.rate is not None][:MOST_NAMES],
        ),
    ]
    return Response("\n".join(lines) + "\n", media_type=MEDIA_TYPE)


def _tasks(types: Iterable[TypeInfo], others: Iterable[TypeInfo]) -> Iterator[Sample]:
    for each in types:
        for state in STATES:
            yield {"type": each.name, "status": status_of(state)}, getattr(each, state)
    for state, count in summed(map(_counts, others)).items():
        yield {"type": "", "status": status_of(state)}, count


def _counts(info: TypeInfo) -> dict[str, int]:
    return {state: getattr(info, state) for state in STATES}


def _metric(name: str, purpose: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {purpose}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{inside}}} {float(value):.17g}" if inside else f"{name} {float(value):.17g}"


def _escaped(text: Any) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
