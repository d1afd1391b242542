"""Where the arguments of tasks hold secrets: by the tasks defined here, and by the reports of workers."""

from __future__ import annotations

import time
from typing import Final

from tasklib.definition import Registry, secrets_of
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation

CACHE_SECONDS: Final = 1.0
"""Reports of workers are read no more often."""
MOST_NAMES: Final = 10_000
"""How many names are remembered when their workers have ended."""


class SecretPlaces:
    """For each name, where its arguments hold secrets, as paths.

    A submission by name alone, over HTTP or by SQL, cannot mark the row: that takes the function's annotations.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._reported: dict[str, tuple[str, ...]] = {}
        self._asked: float | None = None

    def of(self, name: str) -> tuple[str, ...]:
        """The places in arguments of this name."""
        known = secrets_of(self._registry.get(name))
        return tuple(dict.fromkeys((*known, *self._reported.get(name, ()))))

    @property
    def is_fresh(self) -> bool:
        """Whether what live workers report was read a moment ago."""
        return self._asked is not None and time.monotonic() - self._asked < CACHE_SECONDS

    def learn(self) -> Operation[None]:
        """Read what live workers report, unless that was done a moment ago."""
        if self.is_fresh:
            return
        reported = yield from workers.reported_secrets()
        self._asked = time.monotonic()
        before = self._reported if len(self._reported) < MOST_NAMES else {}
        self._reported = {**before, **reported}
