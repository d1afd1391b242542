"""Whether a claim goes on from where the last one left off, or looks at everything that is due.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from tasklib.storage.operations.claims import Position

RESUME_SECONDS = 0.1
"""How long claims go on before one looks at everything again: no longer than a claimed task may wait in the buffer."""
LOOK_SHARE = 0.1
"""The part of the time of claims that may be spent on looking at everything: while an old snapshot holds vacuum back,
such a look reads over all that was claimed since, and takes longer and longer."""
MAX_RESUME_SECONDS = 10.0
MAX_WOKEN = 10_000
"""Woken tasks to keep in mind; the next look at everything finds all."""
WOKEN_AT_ONCE = 1000


class ClaimCursor:
    """Where the last claim left off, what was woken before that since, and for how long that is good enough."""

    def __init__(self) -> None:
        self._woken: dict[int, None] = {}
        self._last: Sequence[Position] = ()
        self._until = 0.0

    def after(self, names: Collection[str], now: float) -> Sequence[Position]:
        """Where to go on, for a moment: something more urgent may have come in before it since."""
        return self._last if now < self._until and all(place.name in names for place in self._last) else ()

    def woken(self, seqs: Iterable[int]) -> None:
        """These tasks were woken: they come before new work, wherever they lie."""
        self._woken.update(dict.fromkeys(islice(seqs, MAX_WOKEN - len(self._woken))))

    def take_woken(self) -> list[int]:
        """The next of them for one claim, once."""
        taken = list(islice(self._woken, WOKEN_AT_ONCE))
        for seq in taken:
            del self._woken[seq]
        return taken

    def went_on(self, last: Sequence[Position]) -> None:
        """A claim went on from there, and left off here."""
        self._last = last

    def looked(self, last: Sequence[Position], *, began: float, ended: float) -> None:
        """A claim looked at everything, and left off here."""
        self._last = last
        seconds = max(RESUME_SECONDS, (ended - began) * (1 / LOOK_SHARE - 1))
        self._until = ended + min(MAX_RESUME_SECONDS, seconds)
