"""How worker instances ended, and which releases they ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from tasklib.core.codec import dumps
from tasklib.core.queue_info import EndedWorker
from tasklib.core.task import Attempt
from tasklib.storage.rows import ended_worker_from_row, moment, required_moment
from tasklib.storage.statement import Operation, Statement


@dataclass(frozen=True, slots=True)
class WorkerRelease:
    """The release that one instance ran."""

    worker_id: str
    release: str
    started_at: datetime
    ended_at: datetime | None
    """None while it is alive."""

    def ran(self, attempt: Attempt) -> bool:
        """Whether it ran this attempt."""
        if attempt.worker_id != self.worker_id or attempt.started_at is None or attempt.started_at < self.started_at:
            return False
        return self.ended_at is None or attempt.started_at <= self.ended_at


NOTHING_HELD: Final[Mapping[str, int]] = {}


def note_ended_workers(
    instances: Sequence[str], ending: Literal["stopped", "lost"], held: Mapping[str, int] = NOTHING_HELD
) -> Operation[None]:
    """Record that registered instances end, with how many tasks each held; kept for a week."""
    asked = {"ended": dumps(list(instances)), "ending": ending, "held": dumps(dict(held))}
    yield Statement("note_ended_workers", asked)


def find_releases(worker_ids: Iterable[str]) -> Operation[list[WorkerRelease]]:
    """Which releases instances of these names ran, and when; of those that have ended, for a week."""
    rows = yield Statement("find_releases", {"workers": dumps(sorted(set(worker_ids)))})
    return [
        WorkerRelease(row["worker_id"], row["release"], required_moment(row["started_at"]), moment(row["ended_at"]))
        for row in rows
    ]


def list_ended_workers(*, seconds: float, limit: int = 1000) -> Operation[list[EndedWorker]]:
    """Instances that ended in the last so many seconds, the latest first; of more than `limit` the lost ones stay."""
    rows = yield Statement("list_ended_workers", {"seconds": seconds, "limit": limit})
    return sorted((ended_worker_from_row(row) for row in rows), key=lambda each: each.ended_at, reverse=True)
