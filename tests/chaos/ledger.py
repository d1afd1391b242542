"""What really happened, from the file the tasks wrote, held against what the table says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tests.fixtures.reading import whole_lines


class Entry(NamedTuple):
    """One line: an execution of a claim started, or ended, in a process; moments compare across processes."""

    what: str
    task_id: UUID
    version: int
    pid: int
    moment: float


@dataclass(frozen=True)
class Ledger:
    """The append-only file."""

    path: Path

    def entries(self) -> list[Entry]:
        """Every line so far."""
        lines = (line.split() for line in whole_lines(self.path))
        return [Entry(what, UUID(id_), int(version), int(pid), float(at)) for what, id_, version, pid, at in lines]

    def starts(self) -> list[Entry]:
        return [entry for entry in self.entries() if entry.what == "start"]

    def count(self) -> int:
        """How many lines there are, without reading them one by one."""
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0

    def started_in(self, pid: int) -> list[Entry]:
        return [entry for entry in self.starts() if entry.pid == pid]

    def starts_of(self, task_id: UUID) -> list[Entry]:
        return [entry for entry in self.starts() if entry.task_id == task_id]

    def executed_twice(self) -> list[Entry]:
        """Claims whose function was started more than once: never, whatever happens."""
        claims = Counter((entry.task_id, entry.version) for entry in self.starts())
        return [entry for entry in self.starts() if claims[entry.task_id, entry.version] > 1]


def duplicates(ids: Iterable[UUID]) -> list[UUID]:
    """What occurs more than once."""
    return [task_id for task_id, count in Counter(ids).items() if count > 1]
