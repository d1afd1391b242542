"""Objectives of types: set, removed, and how they stand."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tasklib.core.insights.objectives import Kind, Objective, Standing, standing
from tasklib.queue.sync_async import operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.operations import objectives, statistics
from tasklib.storage.statement import Operation

__all__ = ["Kind", "Objective", "Objectives", "Standing", "read_standings", "standing"]

DAY_SECONDS: Final = 86_400
MOST_STANDINGS: Final = 100
_WHOLE: Final = 1 << 40


class Objectives(ServicePart):
    """The objectives of one queue."""

    @operation
    def set(self, objective: Objective, *, audit: AuditEntry | None = None) -> Operation[None]:
        """Store an objective; it replaces the one of its name and kind."""
        yield from self.audited(objectives.set_objective(objective), audit)

    aset = set.as_async

    @operation
    def remove(self, name: str | None, kind: Kind, *, audit: AuditEntry | None = None) -> Operation[bool]:
        """Remove an objective; False if there is none."""
        work = objectives.remove_objective(name, kind)
        return (yield from self.audited(work, audit, lambda done: {} if done else None))

    aremove = remove.as_async

    @operation
    def standings(self, *, seconds: int = DAY_SECONDS) -> Operation[tuple[Standing, ...]]:
        """How each objective stands over the last seconds, by name; of at most a hundred."""
        return (yield from read_standings(seconds))

    astandings = standings.as_async


def read_standings(seconds: int = DAY_SECONDS) -> Operation[tuple[Standing, ...]]:
    """How each objective stands over the last seconds."""
    found = yield from objectives.list_objectives()
    clock = (yield from statistics.read_time()) if found else 0
    shown: list[Standing] = []
    for objective in found[:MOST_STANDINGS]:
        read = yield from statistics.read_latency(
            since=(clock - seconds) // 60 * 60,
            until=clock + 60,
            step=_WHOLE,
            kind="waits" if objective.kind == "wait" else "runs",
            name=objective.name,
        )
        shown.append(standing(objective, sum(read.values(), Counter[int]())))
    return tuple(shown)
