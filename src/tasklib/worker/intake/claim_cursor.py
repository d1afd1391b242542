"""Decides whether a claim continues where the last one stopped, or scans everything that is due.  No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from tasklib.storage.operations.claims import Position

RESUME_SECONDS = 0.1
"""How long claims continue from the cursor before one scans everything again: no longer than a claimed task may wait
for a slot."""
SCAN_SHARE = 0.1
"""The part of claim time that full scans may take: while an old snapshot holds back vacuum, a full scan reads every row
that was claimed since, and takes longer and longer."""
MAX_RESUME_SECONDS = 10.0
MAX_WOKEN = 10_000
"""How many woken tasks are remembered; the next full scan finds the others."""
WOKEN_AT_ONCE = 1000


class ClaimCursor:
    """Where the last claim stopped, which earlier tasks were woken since, and until when claims may continue from
    there."""

    def __init__(self) -> None:
        self._woken: dict[int, None] = {}
        self._last: Sequence[Position] = ()
        self._until = 0.0

    def after(self, names: Collection[str], now: float) -> Sequence[Position]:
        """Where the next claim may continue; empty when a full scan is due, since more urgent tasks may have
        arrived."""
        return self._last if now < self._until and all(place.name in names for place in self._last) else ()

    def woken(self, seqs: Iterable[int]) -> None:
        """Remember tasks that were woken: they come before new work, wherever they are in the order."""
        self._woken.update(dict.fromkeys(islice(seqs, MAX_WOKEN - len(self._woken))))

    def take_woken(self) -> list[int]:
        """The woken tasks for one claim; each is returned once."""
        taken = list(islice(self._woken, WOKEN_AT_ONCE))
        for seq in taken:
            del self._woken[seq]
        return taken

    def continued(self, last: Sequence[Position]) -> None:
        """Note that a claim continued from the cursor and stopped here."""
        self._last = last

    def scanned(self, last: Sequence[Position], *, began: float, ended: float) -> None:
        """Note that a claim scanned everything and stopped here."""
        self._last = last
        seconds = max(RESUME_SECONDS, (ended - began) * (1 / SCAN_SHARE - 1))
        self._until = ended + min(MAX_RESUME_SECONDS, seconds)
