"""The tasks that run right now, in memory that outlives the process: only these are suspected of having killed it."""

from __future__ import annotations

import mmap
import os
import tempfile
from struct import Struct

SLOTS = 4096
ENTRY = Struct("q")
SIZE = SLOTS * ENTRY.size
FREE = 0
"""Numbers of tasks start at 1."""


class RunningTable:
    """A table of task numbers (`seq`) that a worker process writes and its supervisor reads when that has died."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, SIZE)
        self._slots: dict[int, int] = {}
        self._free = list(range(SLOTS))

    @classmethod
    def create(cls) -> RunningTable:
        """An empty table in memory of its own."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("tasklib-running")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, SIZE)
        return cls(descriptor)

    def begin(self, seq: int) -> None:
        """Note that a task is about to run; one entry is one write, so that no kill can tear it."""
        # Beyond the last slot no task is suspected, which only costs a task that kills its worker another attempt.
        if self._free and seq not in self._slots:
            slot = self._slots[seq] = self._free.pop()
            ENTRY.pack_into(self._memory, slot * ENTRY.size, seq)

    def end(self, seq: int) -> None:
        """Note that a task no longer runs."""
        slot = self._slots.pop(seq, None)
        if slot is not None:
            ENTRY.pack_into(self._memory, slot * ENTRY.size, FREE)
            self._free.append(slot)

    def read(self) -> set[int]:
        """Everything that runs, or ran when the process died."""
        return {seq for (seq,) in ENTRY.iter_unpack(self._memory)} - {FREE}

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self.descriptor)
