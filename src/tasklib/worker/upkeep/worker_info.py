"""What a worker tells of itself with every heartbeat, for people who look after it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

STATM = Path("/proc/self/statm")


def worker_info(
    *,
    stuck_threads: int,
    retention: str,
    limits: Mapping[str, Mapping[str, float]],
    secrets: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """The state of this process, as it stands in its worker's row, and what only the worker knows.

    That is the limits it keeps by itself, and where the arguments of its tasks hold secrets.
    """
    state = {"memory_bytes": resident_bytes(), "stuck_threads": stuck_threads, "retention": retention}
    return {**state, **({"limits": limits} if limits else {}), **({"secrets": secrets} if secrets else {})}


def resident_bytes() -> int | None:
    """The memory this process holds now; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
