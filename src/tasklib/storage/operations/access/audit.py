"""The audit log: who changed what, when and from where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from tasklib.core.codec import dumps, loads
from tasklib.storage.rows import required_moment
from tasklib.storage.statement import BEGIN, COMMIT, DONE_BEFORE, Operation, Row, Statement, T, recall


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change."""

    actor: str
    role: str
    action: str
    target: str | None
    detail: Mapping[str, Any]
    remote: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One change, and when it was."""

    seq: int
    at: datetime
    entry: AuditEntry


def write_audit(entries: Sequence[AuditEntry]) -> Operation[None]:
    """Add entries to the log."""
    yield Statement(WRITE, {"entries": entries_text(entries)})


WRITE: Final = "write_audit"
BEGUN: Final = object()
"""In the place of a result that is not known yet."""


def recorded(work: Operation[T], entry_of: Callable[[Any], AuditEntry | None]) -> Operation[T]:
    """The work with its entry, in one transaction; `entry_of` its result is None if it has changed nothing.

    Work that commits several times has an entry in its first transaction too, so that no part of it is without one;
    `begun` in its detail says what it is, and lists leave it out once the last one is there.  Entries that the work
    itself writes are left out: they know less.
    """
    yield BEGIN
    go_on: Callable[[], Statement] = partial(next, work)
    commits = begun = False
    while True:
        try:
            statement = go_on()
        except StopIteration as end:
            memory = yield from recall()
            if DONE_BEFORE not in memory:  # else the earlier try has written it
                yield from _write(entry_of(end.value))
            result: T = end.value
            return result
        if statement.name == WRITE:
            go_on = partial(work.send, ())
            continue
        if commits and not begun:
            begun = True
            yield from _write(_begun(entry_of(BEGUN)))
        if commits:
            yield COMMIT
        # Delayed until it is known whether it is the last one.
        commits = statement is COMMIT
        rows: Sequence[Row] = ()
        try:
            rows = () if commits else (yield statement)
        except Exception as error:  # noqa: BLE001 the work decides what it means
            go_on = partial(work.throw, error)
        else:
            go_on = partial(work.send, rows)


def _begun(entry: AuditEntry | None) -> AuditEntry | None:
    return None if entry is None else replace(entry, detail={**entry.detail, "begun": True})


def _write(entry: AuditEntry | None) -> Operation[None]:
    if entry is not None:
        yield from write_audit([entry])


def entries_text(entries: Sequence[AuditEntry]) -> str:
    """The entries as a statement takes them."""
    return dumps([_fields(entry) for entry in entries])


def entry_values(entry: AuditEntry) -> dict[str, Any]:
    """The entry as parameters of a statement about one task."""
    return {**_fields(entry), "detail": dumps(entry.detail)}


def _fields(entry: AuditEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in AuditEntry.__slots__}


def list_audit(*, limit: int, before: int | None = None) -> Operation[list[StoredEntry]]:
    """Entries, the newest first; `before` is the `seq` of the last entry of the page before.

    Of work that commits several times the last entry, or the first one while there is no other.
    """
    found = []
    for row in (yield Statement("list_audit", {"limit": limit, "before": before})):
        same = {name: row[name] for name in ("actor", "role", "action", "target", "remote", "request_id")}
        found.append(
            StoredEntry(row["seq"], required_moment(row["at"]), AuditEntry(**same, detail=loads(row["detail"])))
        )
    return found
