"""Concurrency keys: which of them a claim may start tasks of, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tasklib.core.codec import dumps
from tasklib.core.limits import KeyLimit
from tasklib.storage.operations.limits.pauses import EVERYTHING
from tasklib.storage.rows import UNREADABLE, is_undecoded
from tasklib.storage.statement import BEGIN, Operation, Statement

KEYS_AT_ONCE: Final = 32
"""Keys that a claim looks at even if it may start fewer tasks, because many of them may be full."""

UNREADABLE_KEY: Final = UNREADABLE.format("concurrency_key is no UTF-8")


@dataclass(frozen=True, slots=True)
class TakenKeys:
    """The keys that one claim has locked until its transaction ends, and the tasks that may start of each."""

    keys: Sequence[str]
    seqs: Mapping[int, str]
    """The tasks that may start, each with its key."""
    elsewhere: bool
    """Another claim held some of the keys at this moment."""


NO_KEYS: Final = TakenKeys((), {}, elsewhere=False)


def take_keys(names: Sequence[str], caps: Mapping[str, int], room: int) -> Operation[TakenKeys]:
    """Lock the next keys and find what may start of each, so that no limit of a key is ever exceeded.

    `room` and `caps` are what the limits of names leave: a name that can start nothing takes no room from others.
    Two statements lock and look, because the second must see everything that earlier holders of the locks have done.
    """
    yield Statement("spread_hints")
    asked = {"names": dumps(list(names)), "caps": dumps(dict(caps)), "limit": max(room, KEYS_AT_ONCE)}
    rows = (yield Statement("take_keys", asked)) if room > 0 else ()
    odd = [row["id"] for row in rows if is_undecoded(row["key"])]
    if odd:
        yield Statement("fail_unreadable_keys", {"ids": dumps(odd), "error": UNREADABLE_KEY})
        rows = [row for row in rows if not is_undecoded(row["key"])]
    keys = [row["key"] for row in rows if row["locked"]]
    if not keys:
        return TakenKeys((), {}, bool(rows))
    # Keys share the room, so that one with a million tasks does not starve the others.
    free = dumps([name for name in names if caps.get(name, room) > 0])
    looked = {"keys": dumps(keys), "names": free, "share": max(1, room // len(keys))}
    found = yield Statement("find_keyed", looked)
    order = {key: place for place, key in enumerate(keys)}
    first = sorted(found, key=lambda row: order[row["key"]])[:room]
    blocked = set(keys) - {row["key"] for row in found}
    used = {row["key"] for row in first}
    return TakenKeys(
        tuple(key for key in keys if key in used or key in blocked),
        {row["seq"]: row["key"] for row in first},
        len(keys) < len(rows),
    )


def settle_hints(taken: TakenKeys, claimed: Sequence[int]) -> Operation[bool]:
    """Record after a claim which keys may start more; False if none of the keys was settled.

    A key whose tasks were all passed over, because others go first or a name is limited, keeps its place.
    """
    passed_over = set(taken.seqs.values()) - {taken.seqs[seq] for seq in claimed if seq in taken.seqs}
    settled = [key for key in taken.keys if key not in passed_over]
    if settled:
        yield Statement("settle_hints", {"keys": dumps(settled)})
    return bool(settled)


def find_hints(names: Sequence[str]) -> Operation[tuple[bool, float | None]]:
    """Whether some key may have a task to start now, and in how many seconds the next one may."""
    (row,) = yield Statement("find_hints", {"names": dumps(list(names))})
    return bool(row["due"]), row["next_in"]


def set_key_limit(key: str | None, name: str | None, count: int | None) -> Operation[None]:
    """Let so many tasks of a key, or of every key without a limit of its own, run at once; None resets the limit."""
    asked = {"key": key or EVERYTHING}
    yield BEGIN
    yield Statement("set_key_limit", {**asked, "name": name or EVERYTHING, "count": count})
    yield Statement("hint_waiting", asked)


def list_key_limits() -> Operation[list[KeyLimit]]:
    """The limits that were set, those for every other name and key first."""
    rows = yield Statement("list_key_limits")
    return [KeyLimit(row["key"] or None, row["max_running"], row["name"] or None) for row in rows]


def get_key_limit(key: str, name: str) -> Operation[KeyLimit]:
    """The limit under which a task of the key and the name stands."""
    row = (yield Statement("get_key_limit", {"key": key, "name": name}))[0]
    return KeyLimit(key, row["count"], row["scope"] or None)


def list_slots(limit: KeyLimit) -> Operation[tuple[str, ...]]:
    """The running tasks of a key that stand under the limit, no more than it allows."""
    asked = {"key": limit.key, "scope": limit.name or EVERYTHING, "limit": limit.max_running}
    return tuple(str(row["id"]) for row in (yield Statement("list_slots", asked)))
