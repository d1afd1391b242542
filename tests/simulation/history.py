"""What happened in a run: who did what and when, in virtual time, readable and comparable."""

from __future__ import annotations

import hashlib

from tests.simulation.loop import VirtualLoop

START = 1000.0


class History:
    """The lines of one run."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []

    def add(self, who: object, what: str) -> None:
        """Note that somebody did something now."""
        self.lines.append(f"{self._loop.now - START:10.4f}  {who!s:<10} {what}")

    @property
    def digest(self) -> str:
        """Equal for equal histories."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]

    def about(self, *words: str, last: int = 200) -> str:
        """The last lines, or of those that have one of the words."""
        chosen = [line for line in self.lines if not words or any(word in line for word in words)]
        return "\n".join(chosen[-last:])
