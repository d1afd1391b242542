"""Metrics for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Response
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from tasklib.core.limits import Limit
from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import Counts, Service
from tasklib.http.schemas.bounds import MOST_NAMES, busiest, summed
from tasklib.http.schemas.fields import status_of
from tasklib.http.security.auth import Permission, needs
from tasklib.service.statistics import Oldest, Overview, TypeInfo

STATES = ("pending", "delayed", "waiting", "running", "completed", "failed", "retrying", "cancelled", "buried")

router = APIRouter(tags=["health"], route_class=AuditedRoute)

TEXT: Final[dict[str, Any]] = {
    "description": "Prometheus text format.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}

Sample = tuple[Sequence[str], float]
"""The values of its labels, and its own."""


@router.get("/metrics", response_class=Response, **needs(Permission.READ, also={200: TEXT}))
async def get_metrics(service: Service, counts: Counts) -> Response:
    """Tasks by type and status, workers, pauses and limits, and what workflows wait for."""
    stats = await counts.stats()
    statistics = service.statistics
    seen = _Seen(
        types=await counts.read(statistics.types, statistics.atypes, stats),
        oldest=await counts.read(statistics.oldest_by_type, statistics.aoldest_by_type),
        overview=await statistics.aoverview(stats),
        limits=await service.queue.alimits(),
        workflows=await statistics.aworkflows(),
    )
    return Response(await counts.beside(seen.text), media_type=CONTENT_TYPE_PLAIN_0_0_4)


_TYPE = ("type",)
_STATUS = ("type", "status")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the metrics are made of."""

    types: Sequence[TypeInfo]
    oldest: Mapping[str, Oldest]
    overview: Overview
    limits: Sequence[Limit]
    workflows: Mapping[str, Mapping[str, int]]

    def text(self) -> bytes:
        named = {each.name: each for each in self.types}
        chosen = set(busiest(named, lambda name: _counts(named[name])))
        types = [each for each in self.types if each.name in chosen]
        others = [each for each in self.types if each.name not in chosen]
        families = _Families(
            _gauge("tasks", "Tasks by type and status; without a type, of all others.", _tasks(types, others), _STATUS),
            _gauge("types", "Types that are stored or that a worker defines.", [((), len(self.types))]),
            _gauge(
                "oldest_due_seconds",
                "For how long the oldest task has been due; 0 if none is.",
                [([t.name], self.oldest[t.name].seconds if t.name in self.oldest else 0.0) for t in types],
                _TYPE,
            ),
            _gauge("workers", "Workers that are alive.", [((), self.overview.workers_alive)]),
            _gauge(
                "type_workers",
                "Live workers that take tasks of the type.",
                [([t.name], t.workers) for t in types],
                _TYPE,
            ),
            _gauge("paused", "1 while tasks of the type may not start.", [([t.name], t.paused) for t in types], _TYPE),
            _gauge(
                "rate_limit",
                "Tasks that may start in a second; without a type, of all.",
                [([each.name or ""], each.rate) for each in self.limits if each.rate is not None][:MOST_NAMES],
                _TYPE,
            ),
            _gauge(
                "waiting",
                "Workflows that wait, by what for: sleep, retry, event, answer, children, prerequisites, budget, code.",
                [([kind], count) for kind, count in sorted(self.workflows["waiting"].items())],
                ("kind",),
            ),
            _gauge("questions", "Questions to people that are open.", _counted(self.workflows, "questions")),
            _gauge("events_undelivered", "Events that nobody has delivered yet.", _counted(self.workflows, "events")),
            _gauge("ends_uncounted", "Ends of children that are not added up yet.", _counted(self.workflows, "ends")),
            _gauge(
                "groups_stopping",
                "Groups of children still to be cancelled or removed.",
                _counted(self.workflows, "stopping"),
            ),
        )
        return generate_latest(families)


class _Families(Collector):
    """The metrics of one answer; prometheus_client's own registry is for metrics that a process keeps."""

    def __init__(self, *families: GaugeMetricFamily) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families


def _gauge(name: str, purpose: str, samples: Iterable[Sample], labels: Sequence[str] = ()) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"tasklib_{name}", purpose, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counted(workflows: Mapping[str, Mapping[str, int]], series: str) -> list[Sample]:
    return [((), workflows[series][""])]


def _tasks(types: Iterable[TypeInfo], others: Iterable[TypeInfo]) -> Iterator[Sample]:
    for each in types:
        for state in STATES:
            yield (each.name, status_of(state)), getattr(each, state)
    for state, count in summed(map(_counts, others)).items():
        yield ("", status_of(state)), count


def _counts(info: TypeInfo) -> dict[str, int]:
    return {state: getattr(info, state) for state in STATES}
