"""Whether a SQLite file is still the one that was opened, or its name means another file, or none, by now.

A process keeps a deleted file for as long as it has it open, and would write to it for nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

from tasklib.errors import DatabaseReplaced


class FileIdentity:
    """The file and its write-ahead log as they were when they were opened."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._opened: tuple[str | None, str | None] = (None, None)

    @property
    def mark(self) -> str:
        """The file that was opened, in short."""
        return self._opened[0] or ""

    def note(self) -> None:
        """Remember what is there now; the connection that was just opened has read from it."""
        if self._path is not None:
            self._opened = mark_of(self._path), mark_of(f"{self._path}-wal")

    def check(self, what_happened: str = "nothing was stored") -> None:
        """Raises DatabaseReplaced if the names no longer mean what was opened: two looks at a folder, some 2 µs."""
        if self._path is None or self._opened[0] is None:
            return
        found = mark_of(self._path), mark_of(f"{self._path}-wal")
        if found == self._opened:
            return
        part = self._path if found[0] != self._opened[0] else f"{self._path}-wal"
        how = "replaced by another" if found[0 if part is self._path else 1] else "deleted"
        raise DatabaseReplaced(
            f"the SQLite file {part} was {how} while this process had it open; {what_happened}; put the old file back, "
            "or restart this program to use what is there now"
        )


def mark_of(path: Path | str) -> str | None:
    """The file that has this name now, in short, or None."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return f"{found.st_dev}:{found.st_ino}"
