"""The limits of names that apply to one claim: locked by its transaction, so that none is ever exceeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tasklib.core.codec import dumps
from tasklib.core.limits import Limit
from tasklib.storage.operations.limits.pauses import EVERYTHING, limit_from_row
from tasklib.storage.statement import Operation, Statement


@dataclass(frozen=True, slots=True)
class HeldLimits:
    """The limits that one claim holds until its transaction ends, and what runs under them."""

    limits: Sequence[Limit] = ()
    elsewhere: Sequence[str] = ()
    """The names whose limits another claim held at this moment."""
    running: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def names(self) -> str:
        """The names under which limits are held, as the claim reads them."""
        return dumps([limit.name or EVERYTHING for limit in self.limits])

    @property
    def next_in(self) -> float | None:
        """Seconds until a rate that is used up allows a task again."""
        waits = [
            (1 - limit.tokens) / limit.rate
            for limit in self.limits
            if limit.rate is not None and limit.tokens is not None and limit.tokens < 1
        ]
        return min(waits, default=None)

    def room(self, most: int, caps: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """How many of at most `most` tasks may start, and how many of each name with a limit."""
        tighter = dict(caps)
        left = dict.fromkeys(self.elsewhere, 0) | {
            limit.name or EVERYTHING: self._left(limit, most) for limit in self.limits
        }
        for name, count in left.items():
            if name == EVERYTHING:
                most = min(most, count)
            else:
                tighter[name] = min(tighter.get(name, count), count)
        return most, tighter

    def _left(self, limit: Limit, most: int) -> int:
        used = sum(self.running.values()) if limit.name is None else self.running.get(limit.name, 0)
        return min(
            most if limit.tokens is None else int(limit.tokens),
            most if limit.max_running is None else max(0, limit.max_running - used),
        )


NO_LIMITS: Final = HeldLimits()


def take_limits(names: Sequence[str]) -> Operation[HeldLimits]:
    """Lock the limits of these names and count what runs under them.

    Locking and counting are two statements: the second sees everything that earlier holders of the locks have done.
    """
    rows = yield Statement("take_limits", {"names": dumps(list(names))})
    limits = [limit_from_row(row) for row in rows if row["locked"]]
    elsewhere = [row["name"] for row in rows if row["name"] is not None and not row["locked"]]
    running: dict[str, int] = {}
    if any(limit.max_running is not None for limit in limits):
        running = {row["name"]: row["count"] for row in (yield Statement("count_running"))}
    return HeldLimits(limits, elsewhere, running)


def spend_tokens(held: HeldLimits, seqs: Sequence[int]) -> Operation[None]:
    """Have each claimed task use up a token of the rates that apply to it."""
    if seqs and any(limit.rate is not None for limit in held.limits):
        yield Statement("spend_tokens", {"seqs": dumps(list(seqs))})
