"""What a worker's process tells of itself, for people who look after it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """The memory this process holds now; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
