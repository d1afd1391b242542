"""Claiming due tasks for a worker, under the limits of names and of concurrency keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from tasklib.core.codec import dumps, loads
from tasklib.core.lifecycle import Ending
from tasklib.core.task import DEFAULT_RETRIES
from tasklib.storage.operations.attempts import end_attempts
from tasklib.storage.operations.limits.keys import NO_KEYS, find_hints, settle_hints, take_keys
from tasklib.storage.operations.limits.names import NO_LIMITS, spend_tokens, take_limits
from tasklib.storage.operations.workers import declare_idle
from tasklib.storage.rows import UNREADABLE, BrokenTask, ClaimedTask, claimed_from_text
from tasklib.storage.statement import BEGIN, Operation, Row, Statement


class Position(NamedTuple):
    """A place in the order in which tasks are claimed."""

    name: str
    priority: int
    due: str
    seq: int


@dataclass(frozen=True, slots=True)
class Retries:
    """How many retries a task gets if its row does not say, as when it was inserted by hand."""

    by_name: Mapping[str, int] = field(default_factory=dict[str, int])
    default: int = DEFAULT_RETRIES


NO_RETRIES: Final = Retries()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a worker asks for: up to `limit` due tasks of these names, leased to its instance."""

    instance: UUID
    worker_id: str
    names: Sequence[str]
    limit: int
    lease_seconds: float
    held: Sequence[tuple[int, int]] = ()
    """The (seq, version) pairs that the instance still has."""
    generation: int = 0
    """The generation it claims in; see `find_strays`."""
    caps: Mapping[str, int] = field(default_factory=dict[str, int])
    """At most so many tasks of a name."""
    plain: bool = False
    """Try a smaller statement first, which is enough where nothing is paused or limited and no key has a hint."""
    lone: bool = False
    """Before that one, try the smallest, which takes a single task: nothing else is expected to be due."""
    after: Sequence[Position] = ()
    """Where the last claim stopped."""
    woken: Sequence[int] = ()
    """The `seq` of tasks that were woken since, which lie before that."""
    keyed: bool = True
    """Look for tasks with a concurrency key too."""
    limited: bool = True
    """Look for tasks of names with a limit too."""
    retries: Retries = NO_RETRIES


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim."""

    tasks: list[ClaimedTask]
    contended: bool = False
    """More was due than was taken, because other workers held it at that moment: ask again at once."""
    registered: bool = True
    """False if this instance was declared dead: it must stop, or register again."""
    limited: bool = False
    """Limits hold for some of these names, so nothing should be claimed that cannot start at once."""
    next_due_in: float | None = None
    """Seconds until the next waiting task of these names becomes due, or a rate limit allows one again."""
    plain: bool = False
    """Nothing is paused or limited: the next claim may try the smaller statement first."""
    hinted: bool = False
    """Tasks with a concurrency key may be able to start: the next claim should look at keys."""
    exhausted: bool = False
    """Nothing due is left; only an insert, an end or the passing of time changes that."""
    last: Sequence[Position] = ()
    """Where this claim left off in each name and priority it saw due, if these were few."""


class Seen(NamedTuple):
    """The answer to `look_around`."""

    may_claim: bool
    """A claim may take something, or is needed to find out whether the instance was declared dead."""
    next_due_in: float | None
    """Seconds until the next waiting task of these names becomes due."""
    events: bool
    """There are undelivered events."""
    groups: bool
    """There are children whose ends are not counted yet, or which must be cancelled."""
    is_notified: bool = True
    """The instance is notified of new tasks for as long as it asked, if it did."""


def look_around(instance: UUID, names: Sequence[str], notify_for: float | None = None) -> Operation[Seen]:
    """Whether there is anything to do for an idle worker of these names: one statement that only reads.

    With `notify_for`, the instance goes on being notified of new tasks for so many seconds from now.
    """
    is_notified = True
    if notify_for is not None:
        yield BEGIN
        is_notified = yield from declare_idle(instance, names, notify_for)
    (row,) = yield Statement("look_around", {"instance": str(instance), "names": dumps(list(names))})
    return Seen(bool(row["may_claim"]), row["next_due_in"], bool(row["events"]), bool(row["groups"]), is_notified)


def claim_tasks(claim: Claim) -> Operation[Claimed]:
    """Lease due tasks, best first; the answer says what the next claim should look for."""
    if claim.plain and not claim.caps:
        claimed = (yield from _claim_lone(claim)) if claim.lone and not claim.after else None
        if claimed is None:
            claimed = yield from _claim_plainly(claim)
        if claimed is not None:
            return claimed
    return (yield from _claim_under_limits(claim))


def _params(claim: Claim) -> dict[str, Any]:
    return {
        "instance": str(claim.instance),
        "generation": claim.generation,
        "worker_id": claim.worker_id,
        "names": dumps(list(claim.names)),
        "limit": claim.limit,
        "lease": claim.lease_seconds,
        "held_seqs": dumps([seq for seq, _ in claim.held]),
        "held_versions": dumps([version for _, version in claim.held]),
        "retries": dumps(dict(claim.retries.by_name)),
        "default_retries": claim.retries.default,
    }


def _claim_under_limits(claim: Claim) -> Operation[Claimed]:
    """Claim where limits or concurrency keys may hold: each decides before the claim, in one transaction with it."""
    limits, keys = NO_LIMITS, NO_KEYS
    if claim.keyed or claim.limited:
        yield BEGIN
        limits = yield from take_limits(claim.names)
    room, caps = limits.room(claim.limit, claim.caps)
    if claim.keyed:
        keys = yield from take_keys(claim.names, caps, room)
    decided = {"limit": room, "caps": dumps(caps), "limits": limits.names, "keyed": dumps(list(keys.seqs))}
    (row,) = yield Statement("claim_tasks", _params(claim) | decided)
    tasks, broken = _claimed(row, room, claim.lease_seconds)
    taken = [*(task.seq for task in tasks), *(each.seq for each in broken)]
    yield from spend_tokens(limits, taken)
    settled = yield from settle_hints(keys, taken)
    hinted, next_hint_in = (yield from find_hints(claim.names)) if row["hints"] else (False, None)
    yield from _fail(broken)
    more = keys.elsewhere or (hinted and (settled or not claim.keyed))
    waits = [wait for wait in (row["next_due_in"], limits.next_in, next_hint_in) if wait is not None]
    return Claimed(
        tasks,
        contended=not tasks and (row["seen"] > 0 or bool(row["blocked"]) or more),
        registered=bool(row["registered"]),
        limited=bool(row["limited"]),
        next_due_in=min(waits, default=None),
        plain=not row["switched"] and not row["hints"],
        hinted=hinted,
    )


def _claim_lone(claim: Claim) -> Operation[Claimed | None]:
    """Lease the best due task alone, with the smallest statement; None where that is not enough, or nothing is due."""
    rows = yield Statement("claim_lone", _params(claim))
    if not rows:
        return None
    (row,) = rows
    next_due_in: float | None = row["next_due_in"]
    tasks, broken = _claimed(row, 1, claim.lease_seconds)
    yield from _fail(broken)
    exhausted = next_due_in is None or next_due_in > 0
    return Claimed(
        tasks, contended=not tasks and not exhausted, plain=True, next_due_in=next_due_in, exhausted=exhausted
    )


def _claim_plainly(claim: Claim) -> Operation[Claimed | None]:
    """The answer of a smaller statement, or None where it is not enough."""
    params = _params(claim)
    if claim.after:
        woken = (yield from _claim_woken(claim, params)) if claim.woken else None
        if woken is not None:
            return woken
        places = dumps([place._asdict() for place in claim.after])
        (row,) = yield Statement("claim_next", {**params, "after": places})
        if row["plain"] and row["tasks"]:
            return replace((yield from _plainly(row, claim)), exhausted=False)
    (row,) = yield Statement("claim_plain", params)
    if not row["plain"]:
        return None
    claimed = yield from _plainly(row, claim)
    missed = not claimed.tasks and row["seen"] > 0 and row["registered"]
    # A row that was locked and not taken had just been written: others may be due after it.
    exhausted = claimed.exhausted and not missed and row["locked"] < claim.limit
    return replace(claimed, contended=missed, next_due_in=row["next_due_in"], exhausted=exhausted)


def _claim_woken(claim: Claim, params: Mapping[str, Any]) -> Operation[Claimed | None]:
    """Lease woken tasks before a claim goes on with new ones; None if there are none to lease."""
    urgent = max(place.priority for place in claim.after)
    (row,) = yield Statement("claim_woken", {**params, "woken": dumps(list(claim.woken)), "priority": urgent})
    if not row["plain"] or not row["tasks"]:
        return None
    return replace((yield from _plainly(row, claim)), exhausted=False, last=claim.after)


def _plainly(row: Row, claim: Claim) -> Operation[Claimed]:
    tasks, broken = _claimed(row, claim.limit, claim.lease_seconds)
    yield from _fail(broken)
    full = len(tasks) + len(broken) == claim.limit
    last = [Position(**place) for place in loads(row["last"])] if full and row.get("last") else ()
    return Claimed(tasks, registered=row["registered"], plain=True, last=last, exhausted=not full)


def _claimed(row: Row, limit: int, lease_seconds: float) -> tuple[list[ClaimedTask], list[BrokenTask]]:
    tasks, broken = claimed_from_text(row["tasks"], (row["now"], lease_seconds))
    if len(tasks) + len(broken) > limit:
        raise AssertionError(f"claimed {len(tasks) + len(broken)} tasks where at most {limit} were asked for")
    return tasks, broken


def _fail(broken: Sequence[BrokenTask]) -> Operation[None]:
    """Fail tasks for good that were claimed and cannot be read."""
    if broken:
        endings = [Ending.give_up(each.id, each.version, error=UNREADABLE.format(each.reason)) for each in broken]
        yield from end_attempts(endings)
