"""Worker instances: registration, heartbeats, and recovery of the tasks of dead ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.core.codec import dumps, loads
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Lost, decide
from tasklib.core.queue_info import WorkerInfo
from tasklib.core.retry import Backoff
from tasklib.core.task import DEFAULT_RETRIES
from tasklib.core.time.liveness import Sighting
from tasklib.storage.operations.attempts import end_attempts
from tasklib.storage.operations.worker_history import note_ended_workers
from tasklib.storage.rows import worker_from_row
from tasklib.storage.statement import BEGIN, Operation, Row, Statement

MAX_NOTIFIED = 16
"""How many idle workers of the same names are notified of new tasks: PostgreSQL wakes every session that
listens, whomever a notification is for.  The others poll."""
ORPHAN_ROWS = 50_000
"""Insertions looked at together for tasks that no worker holds: tens of milliseconds, whatever the table's size."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Who a worker instance is."""

    instance: UUID
    worker_id: str
    host: str
    pid: int
    timeout_seconds: float
    concurrency: int
    names: tuple[str, ...]
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What it reports of itself; every heartbeat may update it."""
    owner: str | None = None
    """Who registered it over HTTP."""


def register_worker(who: Registration) -> Operation[None]:
    """Register the instance; it may claim from now on."""
    yield BEGIN
    yield Statement(
        "register_worker",
        {
            "instance": str(who.instance),
            "worker_id": who.worker_id,
            "host": who.host,
            "pid": who.pid,
            "timeout": who.timeout_seconds,
            "concurrency": who.concurrency,
            "names": dumps(list(who.names)),
            "info": dumps(dict(who.info)),
            "owner": who.owner,
        },
    )


def beat(instance: UUID, info: Mapping[str, Any] | None) -> Operation[bool]:
    """Record a heartbeat; False if the instance was declared dead meanwhile."""
    text = None if info is None else dumps(dict(info))
    return bool((yield Statement("beat", {"instance": str(instance), "info": text})))


def forget_worker(instance: UUID) -> Operation[None]:
    """Remove an instance that stopped in order."""
    yield BEGIN
    yield from note_ended_workers([str(instance)], "stopped")
    yield Statement("forget_worker", {"instance": str(instance)})


def declare_idle(instance: UUID, names: Sequence[str], seconds: float) -> Operation[bool]:
    """Ask to be notified of new tasks, for at most this long; False if enough others of the same names are."""
    asked = {"instance": str(instance), "kind": kind(names), "max_notified": MAX_NOTIFIED, "seconds": seconds}
    return bool((yield Statement("declare_idle", asked)))


def declare_busy(instance: UUID, names: Sequence[str]) -> Operation[None]:
    """Be notified no more; another worker of the same names is notified instead."""
    yield Statement("declare_busy", {"instance": str(instance), "kind": kind(names)})


def wake_workers() -> Operation[None]:
    """Notify every worker that asked for it."""
    yield Statement("wake_workers")


def list_workers() -> Operation[list[WorkerInfo]]:
    """Every registered instance, the one with the latest heartbeat first."""
    rows = yield Statement("list_workers")
    return [worker_from_row(row) for row in rows]


def reported_secrets() -> Operation[dict[str, tuple[str, ...]]]:
    """Where the arguments of tasks hold secrets, as paths by name, as every registered instance reports."""
    found: dict[str, tuple[str, ...]] = {}
    for row in (yield Statement("list_reported_secrets")):
        reported = loads(row["secrets"])
        for name, places in reported.items() if isinstance(reported, dict) else ():
            if isinstance(places, list):
                found[name] = tuple(dict.fromkeys((*found.get(name, ()), *map(str, places))))
    return found


@dataclass(frozen=True, slots=True)
class Strays:
    """Tasks of an instance that it does not know it holds."""

    generation: int
    """The generation in which it claims from now on."""
    tasks: list[tuple[str, int]]


def list_held(instance: UUID) -> Operation[list[tuple[str, int]]]:
    """The (id, version) pairs of the tasks that the instance holds according to the database."""
    rows = yield Statement("list_held", {"instance": str(instance)})
    return [(str(row["id"]), row["version"]) for row in rows]


def find_strays(instance: UUID, known: Collection[tuple[str, int]]) -> Operation[Strays]:
    """All tasks that claims have taken for the instance without its knowledge.

    Claims that it has already sent take nothing any more, even if they reach the database later.

    `known` are the (id, version) pairs that it holds as far as it knows.
    """
    yield BEGIN
    rows = yield Statement("begin_generation", {"instance": str(instance)})
    if not rows:  # It was declared dead, and others have taken back what it held.
        return Strays(0, [])
    held = yield from list_held(instance)
    return Strays(rows[0]["generation"], [pair for pair in held if pair not in known])


def renew_held(instance: UUID, lease_seconds: float) -> Operation[int]:
    """Renew the leases of an instance on its behalf; returns how many."""
    return len((yield Statement("renew_held", {"instance": str(instance), "lease": lease_seconds})))


def look_for_silent(*, lease_patience: float | None = None) -> Operation[list[Sighting]]:
    """Every worker instance by its heartbeat, and with a patience for leases every held task whose lease has passed."""
    rows = yield Statement("look_at_workers")
    seen = [
        Sighting(str(row["instance"]), row["heartbeat"], row["timeout_seconds"], bool(row["overdue"])) for row in rows
    ]
    if lease_patience is not None:
        rows = yield Statement("find_expired_held")
        seen += [
            Sighting(str(row["id"]), row["lease"], lease_patience, is_overdue=True, version=row["version"])
            for row in rows
        ]
    return seen


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery did."""

    tasks: int
    """Tasks recovered."""
    before: int | None = None
    """Where to look for orphans next."""


def recover_silent(silent: Sequence[Sighting], backoff: Backoff) -> Operation[Recovery]:
    """Recover the tasks of silent workers, and those whose lease has passed, if nothing has changed since they were
    observed: after a heartbeat or a renewal that came meanwhile, however late this runs, the task stays where it is.
    """
    yield BEGIN
    dead = yield from _lock_dead(silent)
    stale: list[Row] = []
    if dead:
        stale += yield Statement("find_held_by", {"dead": dumps(dead)})
    recovered = yield from _take_back(stale, backoff, leases=[each for each in silent if each.version is not None])
    yield from _remove(dead, stale)
    return Recovery(recovered)


def recover_stale(backoff: Backoff) -> Operation[Recovery]:
    """Recover at once what is overdue by the database's clock, and running tasks that no registered worker holds.

    Reads the whole table, and cannot distinguish a dead worker from one silenced by an outage or a step of the clock.
    """
    yield BEGIN
    seen = yield from look_for_silent()
    dead = yield from _lock_dead([each for each in seen if each.is_overdue])
    held = (yield Statement("find_held_by", {"dead": dumps(dead)})) if dead else []
    stale = yield Statement("find_stale_any", {"dead": dumps(dead)})
    recovered = yield from _take_back(stale, backoff)
    yield from _remove(dead, held)
    return Recovery(recovered)


def recover_from(instance: UUID, backoff: Backoff, *, suspects: Collection[int] | None = None) -> Operation[int]:
    """Recover the tasks of an instance that is known to have ended, without waiting for missed heartbeats.

    `suspects` are the numbers (`seq`) of those that were running: the others lose no attempt and are not suspected.
    """
    dead = {"dead": dumps([str(instance)])}
    yield BEGIN
    yield Statement("lock_claims", dead)
    held = yield Statement("find_held_by", dead)
    lost = [row for row in held if suspects is None or row["seq"] in suspects]
    if others := [row for row in held if suspects is not None and row["seq"] not in suspects]:
        yield from end_attempts([Ending.release(str(row["id"]), row["version"]) for row in others])
        yield Statement("wake_workers")
    yield from _take_back(lost, backoff)
    yield from _remove([str(instance)], held)
    return len(held)


def release_held(instance: UUID) -> Operation[int]:
    """Release the tasks of an instance that was stopped and has ended; no attempt is spent."""
    dead = {"dead": dumps([str(instance)])}
    yield BEGIN
    yield Statement("lock_claims", dead)
    held = yield from list_held(instance)
    if held:
        yield from end_attempts([Ending.release(task_id, version) for task_id, version in held])
        yield Statement("wake_workers")
    yield from note_ended_workers([str(instance)], "stopped")
    yield Statement("remove_workers", dead)
    return len(held)


def recover_orphans(backoff: Backoff, *, before: int | None = None) -> Operation[Recovery]:
    """Recover tasks whose lease has passed and that no registered worker holds, among ORPHAN_ROWS insertions.

    Looks at the newest, or at those before a position; the answer says before which position to look next.
    """
    yield BEGIN
    until: int = (yield Statement("last_position"))[0]["seq"] if before is None else before
    after = until - ORPHAN_ROWS
    stale = yield Statement("find_orphans", {"after": after, "until": until})
    recovered = yield from _take_back(stale, backoff)
    return Recovery(recovered, before=after if after > 0 else None)


def kind(names: Sequence[str]) -> str:
    """A short digest that workers of the same names share."""
    return sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def _lock_dead(silent: Iterable[Sighting]) -> Operation[list[str]]:
    """The silent instances without a heartbeat since, locked against other recoveries."""
    seen = [{"instance": each.key, "heartbeat": each.value} for each in silent if each.version is None]
    if not seen:
        return []
    dead = [str(row["instance"]) for row in (yield Statement("find_dead_workers", {"silent": dumps(seen)}))]
    if dead:
        yield Statement("lock_claims", {"dead": dumps(dead)})
    return dead


def _remove(dead: Sequence[str], held: Iterable[Row]) -> Operation[None]:
    """Forget dead instances, and note what became of them."""
    if dead:
        yield from note_ended_workers(dead, "lost", Counter(str(row["instance"]) for row in held))
        yield Statement("remove_workers", {"dead": dumps(dead)})


def _take_back(stale: Sequence[Row], backoff: Backoff, *, leases: Iterable[Sighting] = ()) -> Operation[int]:
    """Let lost tasks run again, or end, as `core/outcome` decides; fenced like every other write."""
    lost: dict[str, dict[str, Any]] = {
        each.key: {"id": each.key, "version": each.version, "lease": each.value} for each in leases
    }
    # Those of a dead worker: the state of the lease does not matter.
    lost |= {str(row["id"]): {"id": str(row["id"]), "version": row["version"]} for row in stale}
    if not lost:
        return 0
    held = yield Statement("lock_lost", {"lost": dumps([lost[task_id] for task_id in sorted(lost)])})
    endings = [_after_loss(row, backoff) for row in held]
    if not endings:
        return 0
    refused = yield from end_attempts(endings)
    if any(ending.event is Event.LOSE for ending in endings):
        yield Statement("wake_workers")
    return len(endings) - len(refused)


def _after_loss(row: Row, backoff: Backoff) -> Ending:
    task = _LostTask(
        str(row["id"]),
        row["version"],
        row["retry_count"],
        DEFAULT_RETRIES if row["max_retries"] is None else row["max_retries"],
    )
    return decide(task, Lost(row["error"], row["lost_count"], bool(row["cancel_requested"])), backoff)


class _LostTask(NamedTuple):
    id: str
    version: int
    retry_count: int
    max_retries: int
