"""What really happened, from the file the tasks wrote, held against what the table says."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tasklib import AsyncTaskContext, TaskContext
from tests.fixtures.reading import whole_lines

LEDGER = "TEST_LEDGER"
"""The variable that names the file to the processes of a test."""


def note(what: str, ctx: TaskContext | AsyncTaskContext) -> None:
    """Add a line about the attempt that runs, by one write that no kill can tear."""
    descriptor = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = f"{what} {ctx.task.id} {ctx.fencing_token} {os.getpid()} {time.monotonic()}\n"
    os.write(descriptor, line.encode())
    os.close(descriptor)


class Entry(NamedTuple):
    """One line: an execution of a claim started, or ended, in a process; moments compare across processes.

    `overlap`: it started while the process of an earlier attempt at its task was still there.
    """

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


def duplicates(ids: Iterable[UUID]) -> list[UUID]:
    """What occurs more than once."""
    return [task_id for task_id, count in Counter(ids).items() if count > 1]
