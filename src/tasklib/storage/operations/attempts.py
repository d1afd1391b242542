"""Attempts: their leases, what they report, and how they end; every write is fenced by the claim's version."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasklib.core.codec import dumps
from tasklib.core.lifecycle import EFFECTS, Ending, Event
from tasklib.core.outcome import Completion
from tasklib.core.task import LogLine
from tasklib.core.texts.error_text import ERROR_CHARACTERS, bounded, summary
from tasklib.core.texts.fingerprint import fingerprint
from tasklib.storage.statement import BEGIN, Operation, Row, Statement, recall


def complete_tasks(
    done: Sequence[Completion], *, moment: float | None = None, again: bool = False, members: bool = False
) -> Operation[set[str]]:
    """End attempts in success; returns the ids whose claim had been lost, which changed nothing.

    Their moments are compared with `moment`, or with the machine's.  With `again`, after a lost reply, an attempt that
    is completed already was completed by this call.  With `members`, on PostgreSQL alone, a statement ends them that
    counts children for the workflows that wait for them: the same result, and cheaper than a trigger for each.
    """
    again = yield from _is_repeated(again)
    moment = time.monotonic() if moment is None else moment
    # The results are JSON text already, so the batch is put together as text instead of being parsed and dumped again.
    batch = ",".join(
        f'{{"id":"{d.task_id}","version":{d.version},"result":{d.result},'
        f'"started_ago":{moment - d.started:.6f},"ended_ago":{moment - d.ended:.6f}'
        f"{'' if d.progress is None else _last_report(*d.progress)}}}"
        for d in sorted(done, key=lambda d: d.task_id)
    )
    rows = yield Statement("complete_members" if members else "complete_tasks", {"batch": f"[{batch}]"})
    # Fewer rows are sent and read when each has many ids.
    refused = {d.task_id for d in done}.difference(*(row["ids"].split(",") for row in rows if row["ids"]))
    if refused and again:
        refused -= yield from _find_recorded((d.task_id, d.version, "completed", None) for d in done)
    return refused


def end_attempts(endings: Sequence[Ending], *, moment: float | None = None, again: bool = False) -> Operation[set[str]]:
    """End attempts in any other way; returns the ids whose claim had been lost, which changed nothing.

    Their moments are compared with `moment`, or with the machine's.  With `again`, after a lost reply, an attempt that
    has ended in just this way was ended by this call.
    """
    if any(e.waits_on or e.reopen is not None or e.arguments is not None for e in endings):
        yield BEGIN
    again = yield from _is_repeated(again)
    moment = time.monotonic() if moment is None else moment
    restarting = {e.task_id: e for e in endings if e.arguments is not None}
    if restarting:
        # Groups come before tasks in the order of locks.
        yield Statement("lock_groups_of", {"ids": dumps(sorted(restarting))})
    if waiting := sorted(e.task_id for e in endings if e.waits_on):
        # Whoever fills a step locks its task first: what is filled by now is seen below, and later finds it suspended.
        yield Statement("lock_tasks", {"ids": dumps(waiting)})
    batch = [_ending(ending, moment) for ending in sorted(endings, key=lambda e: e.task_id)]
    rows = yield Statement("end_attempts", {"batch": dumps(batch)})
    refused = _refused((e.task_id for e in endings), rows)
    if refused and again:
        refused -= yield from _find_recorded(ended_as(e) for e in endings)
    if unasked := [e for e in endings if e.unasked and e.task_id not in refused]:
        given = [{"id": e.task_id, "keys": list(e.waits_on), "unasked": list(e.unasked)} for e in unasked]
        yield Statement("prefer_asked", {"batch": dumps(given)})
    if reopened := [
        {"id": e.task_id, "key": e.reopen} for e in endings if e.reopen is not None and e.task_id not in refused
    ]:
        yield Statement("reopen_steps", {"batch": dumps(reopened)})
    if restarting:
        yield from _restart([e for e in restarting.values() if e.task_id not in refused])
    return refused


def _restart(endings: Sequence[Ending]) -> Operation[None]:
    """Let tasks continue as new: what they have recorded is forgotten, and what lives of their children cancelled."""
    batch = ",".join(
        f'{{"id":"{e.task_id}","version":{e.version},"kwargs":{e.arguments}}}'
        for e in sorted(endings, key=lambda e: e.task_id)
    )
    restarted = yield Statement("restart_tasks", {"batch": f"[{batch}]"})
    ids = dumps(sorted(str(row["id"]) for row in restarted))
    yield Statement("forget_steps", {"ids": ids})
    yield Statement("leave_groups", {"ids": ids, "keys": None})


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
    """Store the latest progress of running attempts."""
    batch = [
        {"id": task_id, "version": version, "progress": fraction, "message": message}
        for task_id, version, fraction, message in sorted(reports, key=lambda r: r[0])
    ]
    yield Statement("report_progress", {"batch": dumps(batch)})


def append_log(lines: Mapping[tuple[str, int], Sequence[LogLine]]) -> Operation[None]:
    """Store the latest log lines of running attempts, given by id and version."""
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


def _is_repeated(again: bool) -> Operation[bool]:
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
        "waits_for": ending.waits_for,
        "keys": list(ending.waits_on) or None,
    }


def _refused(asked: Iterable[str], rows: Sequence[Row]) -> set[str]:
    return set(asked) - {str(row["id"]) for row in rows}
