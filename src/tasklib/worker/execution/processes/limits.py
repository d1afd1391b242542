"""The memory limit of a child process, named as the cause when it was reached."""

from __future__ import annotations

import logging
import resource
import sys

log = logging.getLogger("tasklib.worker")


class MemoryLimit:
    """Keeps this process below a number of MiB."""

    def __init__(self, limit_mb: int | None) -> None:
        self._limit_mb = limit_mb
        # The data segment counts what is really used; the address space also what threads and libraries reserve.
        self._kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        if limit_mb is not None:
            try:
                self._set(limit_mb << 20)
            except (ValueError, OSError) as error:
                log.warning("the memory limit of %d MiB cannot be set on this system: %s", limit_mb, error)

    def explain(self, error: BaseException) -> bool:
        """Name the limit as the cause of an error, if it is; it is lifted then, so that the error can be reported."""
        if self._limit_mb is None or not isinstance(error, MemoryError):
            return False
        self._set(resource.RLIM_INFINITY)
        error.add_note(f"memory limit of {self._limit_mb} MiB reached")
        return True

    def _set(self, limit: int) -> None:
        hardest = resource.getrlimit(self._kind)[1]
        fitting = limit if hardest == resource.RLIM_INFINITY or 0 <= limit < hardest else hardest
        resource.setrlimit(self._kind, (fitting, hardest))
