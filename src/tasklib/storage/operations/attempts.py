"""Claiming tasks and ending attempts; every write is fenced by the claim's version."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from tasklib.core.codec import dumps, loads
from tasklib.core.lifecycle import EFFECTS, Ending, Event
from tasklib.core.outcome import Completion
from tasklib.core.task import DEFAULT_RETRIES, LogLine
from tasklib.core.texts.error_text import ERROR_CHARACTERS, bounded, summary
from tasklib.core.texts.fingerprint import fingerprint
from tasklib.storage.operations.limits.keys import NOBODYS_TURN, find_hints, settle_turn, take_turn
from tasklib.storage.operations.limits.names import NO_LIMITS, spend_tokens, take_limits
from tasklib.storage.rows import UNREADABLE, BrokenTask, ClaimedTask, claimed_from_text
from tasklib.storage.statement import BEGIN, Operation, Row, Statement, recall


class Position(NamedTuple):
    """A place in the order in which tasks are claimed."""

    name: str
    priority: int
    due: str
    seq: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim."""

    tasks: list[ClaimedTask]
    contended: bool = False
    """More was due than was taken, because other workers held it at that moment: ask again at once."""
    registered: bool = True
    """False if this instance was declared dead: it must stop, or register anew."""
    limited: bool = False
    """Limits hold for some of these names, so nothing should be claimed that cannot start at once."""
    next_due_in: float | None = None
    """Seconds until the next waiting task of these names becomes due, or a rate limit allows one again."""
    plain: bool = False
    """Nobody has switched anything: the next claim may try the smaller statement first."""
    hinted: bool = False
    """Tasks with a concurrency key may be able to start: the next claim should look at keys."""
    exhausted: bool = False
    """Nothing was left that is due, and nothing but an insert, an end or the passing of time changes that."""
    last: Sequence[Position] = ()
    """Where this claim left off in each name and priority it saw due, if these were few."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How many attempts after the first a task gets whose row does not say, as one inserted by hand."""

    by_name: Mapping[str, int] = field(default_factory=dict[str, int])
    default: int = DEFAULT_RETRIES


NO_RETRIES: Final = Retries()


def claim_tasks(
    *,
    instance: UUID,
    worker_id: str,
    names: Iterable[str],
    limit: int,
    lease_seconds: float,
    held: Sequence[tuple[int, int]],
    generation: int = 0,
    caps: Mapping[str, int] | None = None,
    plain: bool = False,
    after: Sequence[Position] = (),
    keyed: bool = True,
    limited: bool = True,
    retries: Retries = NO_RETRIES,
) -> Operation[Claimed]:
    """Lease up to `limit` due tasks, best first, and of a name in `caps` no more than that.

    `held` are the (seq, version) pairs this instance still has, `generation` the one it claims in (`find_strays`).
    With `plain` a smaller statement is tried first, which is enough where nobody has switched anything and no
    concurrency key asks for a look.  Without `keyed` only tasks without such a key are looked for, without `limited`
    only those of names without a limit: the answer of one claim tells what the next should look for.
    `retries` decide for rows whose submitter left it open.
    """
    known = list(names)
    params = {
        "instance": str(instance),
        "generation": generation,
        "worker_id": worker_id,
        "names": dumps(known),
        "limit": limit,
        "lease": lease_seconds,
        "held_seqs": dumps([seq for seq, _ in held]),
        "held_versions": dumps([version for _, version in held]),
        "retries": dumps(dict(retries.by_name)),
        "default_retries": retries.default,
    }
    if plain and not caps:
        claimed = yield from _claim_plainly(params, after)
        if claimed is not None:
            return claimed
    return (yield from _claim_under_limits(params, known, caps or {}, keyed=keyed, limited=limited))


def complete_tasks(done: Sequence[Completion], *, again: bool = False) -> Operation[set[str]]:
    """End attempts in success; returns the ids whose claim had been lost, which changed nothing.

    Said `again` because the reply was lost, an attempt that is completed already was completed by this.
    """
    again = yield from _said_again(again)
    moment = time.monotonic()
    # The results are JSON text already, so the batch is put together as text instead of being parsed and dumped again.
    batch = ",".join(
        f'{{"id":"{d.task_id}","version":{d.version},"result":{d.result},'
        f'"started_ago":{moment - d.started:.6f},"ended_ago":{moment - d.ended:.6f}'
        f"{'' if d.progress is None else _last_report(*d.progress)}}}"
        for d in sorted(done, key=lambda d: d.task_id)
    )
    rows = yield Statement("complete_tasks", {"batch": f"[{batch}]"})
    # Fewer rows are sent and read when each has many ids.
    refused = {d.task_id for d in done}.difference(*(row["ids"].split(",") for row in rows if row["ids"]))
    if refused and again:
        refused -= yield from _find_recorded((d.task_id, d.version, "completed", None) for d in done)
    return refused


def end_attempts(endings: Sequence[Ending], *, again: bool = False) -> Operation[set[str]]:
    """End attempts in any other way; returns the ids whose claim had been lost, which changed nothing.

    Said `again` because the reply was lost, an attempt that has ended in just this way was ended by this.
    """
    again = yield from _said_again(again)
    moment = time.monotonic()
    batch = [_ending(ending, moment) for ending in sorted(endings, key=lambda e: e.task_id)]
    rows = yield Statement("end_attempts", {"batch": dumps(batch)})
    refused = _refused((e.task_id for e in endings), rows)
    if refused and again:
        refused -= yield from _find_recorded(ended_as(e) for e in endings)
    return refused


def ended_as(ending: Ending) -> tuple[str, int, str, str | None]:
    """What shows in a row that its last attempt ended in this way: id, version, state, outcome in the history."""
    return ending.task_id, ending.version, str(EFFECTS[ending.event].state), ending.outcome


def is_recorded(task_id: str, version: int, state: str, outcome: str | None) -> Operation[bool]:
    """Whether the attempt with this version was the task's last and ended like this."""
    return bool((yield from _find_recorded([(task_id, version, state, outcome)])))


def renew_leases(held: Iterable[tuple[str, int]], *, lease_seconds: float) -> Operation[tuple[set[str], set[str]]]:
    """Move leases forward; returns the ids no longer ours, and those a person asked to cancel."""
    attempts = sorted(held)
    if not attempts:
        return set(), set()
    rows = yield Statement("renew_leases", {"held": _held(attempts), "lease": lease_seconds})
    cancelled = {str(row["id"]) for row in rows if row["cancel_requested_at"] is not None}
    return _refused((task_id for task_id, _ in attempts), rows), cancelled


def find_cancel_requests(held: Iterable[tuple[str, int]]) -> Operation[tuple[set[str], set[str]]]:
    """Which of these attempts are no longer ours, and which a person asked to cancel."""
    rows = yield Statement("find_cancel_requests", {"held": _held(held)})
    lost = {str(row["id"]) for row in rows if row["lost"]}
    return lost, {str(row["id"]) for row in rows} - lost


def report_progress(reports: Iterable[tuple[str, int, float, str | None]]) -> Operation[None]:
    """Keep the latest progress of running attempts."""
    batch = [
        {"id": task_id, "version": version, "progress": fraction, "message": message}
        for task_id, version, fraction, message in sorted(reports, key=lambda r: r[0])
    ]
    yield Statement("report_progress", {"batch": dumps(batch)})


def append_log(lines: Mapping[tuple[str, int], Sequence[LogLine]]) -> Operation[None]:
    """Keep the latest lines that running attempts, given by id and version, have logged."""
    batch = [
        {
            "id": task_id,
            "version": version,
            "lines": [
                {"attempt": n.attempt, "elapsed": round(n.elapsed, 3), "level": n.level, "text": n.text} for n in logged
            ],
        }
        for (task_id, version), logged in sorted(lines.items())
    ]
    yield Statement("append_log", {"batch": dumps(batch)})


def _last_report(fraction: float, message: str | None) -> str:
    return f',"progress":{fraction!r},"message":{dumps(message)}'


def _said_again(again: bool) -> Operation[bool]:
    """Whether an earlier try of this call may have been recorded."""
    memory = yield from recall()
    again = again or "sent" in memory
    memory["sent"] = True
    return again


def _find_recorded(ended: Iterable[tuple[str, int, str, str | None]]) -> Operation[set[str]]:
    batch = [
        {"id": task_id, "version": version, "state": state, "outcome": outcome}
        for task_id, version, state, outcome in ended
    ]
    return {str(row["id"]) for row in (yield Statement("find_recorded", {"batch": dumps(batch)}))}


def _claim_under_limits(
    params: Mapping[str, Any], known: Sequence[str], caps: Mapping[str, int], *, keyed: bool, limited: bool
) -> Operation[Claimed]:
    """Claim where limits or concurrency keys may hold: each decides before the claim, in one transaction with it."""
    limits, turn = NO_LIMITS, NOBODYS_TURN
    if keyed or limited:
        yield BEGIN
        limits = yield from take_limits(known)
    room, most = limits.room(params["limit"], caps)
    if keyed:
        turn = yield from take_turn(known, most, room)
    decided = {"limit": room, "caps": dumps(most), "limits": limits.names, "keyed": dumps(list(turn.seqs))}
    (row,) = yield Statement("claim_tasks", {**params, **decided})
    tasks, broken = _claimed(row, room, params["lease"])
    taken = [*(task.seq for task in tasks), *(each.seq for each in broken)]
    yield from spend_tokens(limits, taken)
    settled = yield from settle_turn(turn, taken)
    hinted, next_hint_in = (yield from find_hints(known)) if row["hints"] else (False, None)
    yield from _fail(broken)
    more = turn.elsewhere or (hinted and (settled or not keyed))
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


def _claim_plainly(params: Mapping[str, Any], after: Sequence[Position]) -> Operation[Claimed | None]:
    """The answer of a smaller statement, or None where it is not enough."""
    if after:
        places = dumps([place._asdict() for place in after])
        (row,) = yield Statement("claim_next", {**params, "after": places})
        if row["plain"] and row["tasks"]:
            return replace((yield from _plainly(row, params)), exhausted=False)
    (row,) = yield Statement("claim_plain", params)
    if not row["plain"]:
        return None
    claimed = yield from _plainly(row, params)
    missed = not claimed.tasks and row["seen"] > 0 and row["registered"]
    exhausted = claimed.exhausted and not missed
    return replace(claimed, contended=missed, next_due_in=row["next_due_in"], exhausted=exhausted)


def _plainly(row: Row, params: Mapping[str, Any]) -> Operation[Claimed]:
    tasks, broken = _claimed(row, params["limit"], params["lease"])
    yield from _fail(broken)
    full = len(tasks) + len(broken) == params["limit"]
    last = [Position(**place) for place in loads(row["last"])] if full and row["last"] else ()
    return Claimed(tasks, registered=row["registered"], plain=True, last=last, exhausted=not full)


def _claimed(row: Row, limit: int, lease_seconds: float) -> tuple[list[ClaimedTask], list[BrokenTask]]:
    tasks, broken = claimed_from_text(row["tasks"], (row["now"], lease_seconds))
    if len(tasks) + len(broken) > limit:
        raise AssertionError(f"claimed {len(tasks) + len(broken)} tasks where at most {limit} were asked for")
    return tasks, broken


def _fail(broken: Sequence[BrokenTask]) -> Operation[None]:
    """End tasks for good that were claimed and cannot be read; each alone."""
    if broken:
        endings = [Ending.give_up(each.id, each.version, error=UNREADABLE.format(each.reason)) for each in broken]
        yield from end_attempts(endings)


def _held(held: Iterable[tuple[str, int]]) -> str:
    return dumps([{"id": task_id, "version": version} for task_id, version in held])


def _ending(ending: Ending, moment: float) -> dict[str, Any]:
    effect = EFFECTS[ending.event]
    error = None if ending.error is None else bounded(ending.error, ERROR_CHARACTERS)
    return {
        "id": ending.task_id,
        "version": ending.version,
        "state": str(effect.state),
        "terminal": effect.terminal,
        "delay": ending.delay,
        "refund": effect.refund,
        "retried": effect.retried,
        "lost": int(ending.outcome == "lost"),
        "released": ending.event is Event.RELEASE,
        "error": error,
        "fingerprint": None if error is None else fingerprint(error),
        "outcome": ending.outcome,
        "summary": None if error is None else summary(error),
        "started_ago": None if ending.started is None else moment - ending.started,
        "ended_ago": 0.0 if ending.ended is None else moment - ending.ended,
        "progress": None if ending.progress is None else ending.progress[0],
        "message": None if ending.progress is None else ending.progress[1],
    }


def _refused(asked: Iterable[str], rows: Sequence[Row]) -> set[str]:
    return set(asked) - {str(row["id"]) for row in rows}
