"""A queue as a dictionary: what storage should do, in the fewest words.  Time is whole seconds; no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from tasklib.core.lifecycle import EFFECTS, LIVE, TERMINAL, WAITING, Event, Phase
from tasklib.core.retry import Backoff
from tasklib.core.task import TaskState

TIMEOUT = 29.5
LEASE = 600.25
"""Never whole, so that no test depends on which side of a moment is in."""
BACKOFF = Backoff(jitter=0)


@dataclass(slots=True)
class Row:
    """A task, as far as the model cares."""

    id: UUID
    name: str
    priority: int
    scheduled: float
    max_retries: int
    key: str | None
    expires: float | None
    phase: Phase = Phase.PENDING
    retry_at: float | None = None
    attempts: int = 0
    retry_count: int = 0
    lost_count: int = 0
    version: int = 0
    """Of the last claim; which one it gets is the database's to choose."""
    cancel_requested: bool = False
    holder: UUID | None = None
    lease: float = 0.0
    failed_last: bool = False
    """Whether its last recorded attempt failed, and was not lost."""

    @property
    def due(self) -> float | None:
        if self.phase not in WAITING:
            return None
        return self.scheduled if self.retry_at is None else self.retry_at


@dataclass(slots=True)
class Model:
    """All tasks in insertion order, the instances with their last heartbeat, and what is paused."""

    now: float = 0.0
    rows: dict[UUID, Row] = field(default_factory=dict)
    beats: dict[UUID, float] = field(default_factory=dict)
    paused: set[str | None] = field(default_factory=set)

    def holder_of(self, name: str, key: str | None) -> Row | None:
        """The live task that has the key."""
        live = (row for row in self.rows.values() if row.phase in LIVE and key is not None)
        return next((row for row in live if (row.name, row.key) == (name, key)), None)

    def submit(self, new: Row, on_conflict: str) -> tuple[UUID, bool] | None:
        """The id and whether a row was made; None for a conflict."""
        holder = self.holder_of(new.name, new.key)
        if holder is None:
            self.rows[new.id] = new
            return new.id, True
        if on_conflict == "return":
            return holder.id, False
        if on_conflict == "raise" or holder.phase is Phase.RUNNING:
            return None
        kept = {"id": holder.id, "version": holder.version}
        self.rows[holder.id] = replace(new, **kept)
        return holder.id, False

    def claim(self, instance: UUID, names: Iterable[str], limit: int) -> list[UUID]:
        if instance not in self.beats or None in self.paused:
            return []
        wanted = set(names) - self.paused
        due = [row for row in self.rows.values() if row.name in wanted and row.due is not None and row.due <= self.now]
        due.sort(key=lambda row: (-row.priority, row.due))  # stable, so insertion decides the rest
        claimed = []
        for row in due[:limit]:
            row.retry_at = None
            if row.expires is not None and row.expires <= self.now:
                row.phase = Phase.CANCELLED
            else:
                row.phase, row.attempts = Phase.RUNNING, row.attempts + 1
                row.holder, row.lease = instance, self.now + LEASE
                claimed.append(row.id)
        return claimed

    def end(self, task_id: UUID, version: int, event: Event, delay: float | None) -> bool:
        """Whether the ending is accepted."""
        row = self.rows.get(task_id)
        if row is None or row.phase is not Phase.RUNNING or row.version != version:
            return False
        if event is Event.COMPLETE:
            row.phase, row.cancel_requested = Phase.COMPLETED, False
            return True
        effect = EFFECTS[event]
        if row.cancel_requested and not effect.terminal:
            row.phase, row.attempts = Phase.CANCELLED, row.attempts - effect.refund
            return True
        given_back = event is Event.RELEASE and row.retry_count > 0 and row.failed_last
        row.failed_last = row.failed_last or event is Event.RETRY_LATER
        retrying = given_back or (effect.state is TaskState.FAILED and not effect.terminal)
        row.phase = Phase.RETRYING if retrying else Phase(effect.state.value)
        row.attempts, row.retry_count = row.attempts - effect.refund, row.retry_count + effect.retried
        row.retry_at = self.now if given_back else None if delay is None else self.now + delay
        return True

    def renew(self, task_id: UUID, version: int) -> bool:
        row = self.rows.get(task_id)
        if row is None or row.phase is not Phase.RUNNING or row.version != version:
            return False
        row.lease = self.now + LEASE
        return True

    def cancel(self, task_id: UUID) -> bool:
        row = self.rows.get(task_id)
        if row is None or row.phase in TERMINAL:
            return False
        row.cancel_requested = True
        if row.phase is not Phase.RUNNING:
            row.phase, row.retry_at = Phase.CANCELLED, None
        return True

    def retry(self, task_id: UUID) -> bool:
        row = self.rows.get(task_id)
        if row is None or row.phase in (Phase.PENDING, Phase.RUNNING):
            return False
        holder = self.holder_of(row.name, row.key)
        if holder is not None and holder is not row:
            return False
        row.phase, row.retry_at, row.expires, row.cancel_requested = Phase.PENDING, None, None, False
        row.attempts = row.retry_count = row.lost_count = 0
        row.scheduled = min(row.scheduled, self.now)
        return True

    def delete(self, task_id: UUID) -> bool:
        row = self.rows.get(task_id)
        if row is None or row.phase in LIVE:
            return False
        del self.rows[task_id]
        return True

    def recover(self, *, thorough: bool) -> int:
        dead = {instance for instance, beat in self.beats.items() if self.now - beat > TIMEOUT}
        lost = [row for row in self.rows.values() if row.phase is Phase.RUNNING and self._is_lost(row, dead, thorough)]
        for row in lost:
            self._lose(row)
        for instance in dead:
            del self.beats[instance]
        return len(lost)

    def _is_lost(self, row: Row, dead: set[UUID], thorough: bool) -> bool:
        known = row.holder in self.beats
        if row.holder in dead or (thorough and not known):
            return True
        return row.lease < self.now and (known or thorough)

    def _lose(self, row: Row) -> None:
        if row.cancel_requested:
            row.phase = Phase.CANCELLED
        elif row.retry_count >= row.max_retries:
            row.phase = Phase.BURIED
        else:
            row.phase = Phase.PENDING
            row.retry_at = self.now + BACKOFF(row.retry_count) if row.lost_count else None
            row.retry_count += 1
        row.lost_count += 1
        row.failed_last = False
