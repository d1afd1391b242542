"""Objectives: how many tasks should start, or end, within a time, and how that stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasklib.core.insights.objectives import Kind, ObjectiveStatus, check_objective
from tasklib.definition import check_name
from tasklib.queue.arguments import check_whole
from tasklib.queue.base import QueueBase
from tasklib.queue.change_log import if_done, logged
from tasklib.queue.sync_async import operation
from tasklib.storage.operations import objectives
from tasklib.storage.operations.objectives import DAY_SECONDS, read_objective_statuses
from tasklib.storage.statement import Operation


class HasObjectives(QueueBase):
    """Objectives, and how they stand."""

    @operation
    def set_objective(
        self,
        name: str | None = None,
        *,
        within_seconds: float,
        target: float = 99.5,
        kind: Kind = "wait",
        by: str | None = None,
    ) -> Operation[None]:
        """Want `target` percent of the attempts of a name, or of all together, to start or end within so many seconds.

        `kind="wait"` is from due to started, `kind="run"` from started to ended.  It replaces the objective of its name
        and kind.  `doctor`, `top`, the dashboard and `GET /api/findings` report one that is at risk.

        Examples:
            >>> queue.set_objective("add", within_seconds=5)  # 99.5 % start within 5 s
            >>> queue.set_objective("add", within_seconds=60, target=99, kind="run")
            >>> [str(each.objective) for each in queue.objectives()]
            ['99 % end within 60 s', '99.5 % start within 5 s']
        """
        wanted = check_objective(None if name is None else check_name(name), kind, within_seconds, target, by)
        change = objectives.set_objective(wanted)
        detail: dict[str, Any] = {"type": name, "kind": kind, "withinSeconds": within_seconds, "target": target}
        yield from logged(change, "set_objective", by=by, added=if_done, **detail)

    aset_objective = set_objective.as_async

    @operation
    def remove_objective(self, name: str | None = None, *, kind: Kind = "wait") -> Operation[bool]:
        """Remove an objective; False if there is none of that name and kind.

        Examples:
            >>> queue.set_objective(within_seconds=5)
            >>> queue.remove_objective(), queue.remove_objective()
            (True, False)
        """
        change = objectives.remove_objective(name, kind)
        return (yield from logged(change, "remove_objective", added=if_done, type=name, kind=kind))

    aremove_objective = remove_objective.as_async

    @operation
    def objectives(self, *, seconds: int = DAY_SECONDS) -> Operation[Sequence[ObjectiveStatus]]:
        """Every objective, and how it stands over the last seconds, a day by default.

        Examples:
            >>> queue.set_objective("add", within_seconds=5)
            >>> [status] = queue.objectives()
            >>> status.count, status.budget, status.at_risk  # nothing has run yet
            (0, None, False)
        """
        return (yield from read_objective_statuses(check_whole("a number of seconds", seconds)))

    aobjectives = objectives.as_async
