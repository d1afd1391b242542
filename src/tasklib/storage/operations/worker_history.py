"""What became of worker instances that are not there any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from tasklib.core.codec import dumps
from tasklib.core.queue_info import EndedWorker
from tasklib.storage.rows import ended_worker_from_row
from tasklib.storage.statement import Operation, Statement

NONE: Final[Mapping[str, int]] = {}


def note_ended(
    instances: Sequence[str], ending: Literal["stopped", "lost"], held: Mapping[str, int] = NONE
) -> Operation[None]:
    """Record that registered instances end, with how many tasks each held; kept for a week."""
    asked = {"ended": dumps(list(instances)), "ending": ending, "held": dumps(dict(held))}
    yield Statement("note_ended_workers", asked)


def list_ended_workers(*, seconds: float, limit: int = 1000) -> Operation[list[EndedWorker]]:
    """Instances that ended in the last so many seconds, the latest first."""
    rows = yield Statement("list_ended_workers", {"seconds": seconds, "limit": limit})
    return [ended_worker_from_row(row) for row in rows]
