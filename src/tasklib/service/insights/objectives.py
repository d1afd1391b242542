"""Objectives of types: set, removed, and how they stand."""

from __future__ import annotations

from tasklib.core.insights.objectives import Kind, Objective, ObjectiveStatus, check_objective, objective_status
from tasklib.queue.change_log import if_done
from tasklib.queue.sync_async import operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.operations import objectives
from tasklib.storage.operations.objectives import DAY_SECONDS, read_objective_statuses
from tasklib.storage.statement import Operation

__all__ = [
    "Kind",
    "Objective",
    "ObjectiveStatus",
    "Objectives",
    "check_objective",
    "objective_status",
    "read_objective_statuses",
]


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
        return (yield from self.audited(work, audit, if_done))

    aremove = remove.as_async

    @operation
    def statuses(self, *, seconds: int = DAY_SECONDS) -> Operation[tuple[ObjectiveStatus, ...]]:
        """How each objective stands over the last seconds, by name; of at most a hundred."""
        return (yield from read_objective_statuses(seconds))

    astatuses = statuses.as_async
