"""Where the arguments of tasks hold secrets: by the code that is known here, and by what workers tell of theirs."""

from __future__ import annotations

import time
from typing import Final

from tasklib.definition import Registry, secrets_of
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation

FRESH_SECONDS: Final = 1.0
"""What workers have told is asked for no more often."""
MOST_NAMES: Final = 10_000
"""Of so many names what was told is remembered when the workers have gone."""


class SecretPlaces:
    """Knows for each name where its arguments hold secrets, as paths.

    Who submits by name alone, over HTTP or by SQL, cannot mark the row: only code with the function can tell.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._told: dict[str, tuple[str, ...]] = {}
        self._asked: float | None = None

    def of(self, name: str) -> tuple[str, ...]:
        """The places in arguments of this name."""
        known = secrets_of(self._registry.get(name))
        return tuple(dict.fromkeys((*known, *self._told.get(name, ()))))

    def learn(self) -> Operation[None]:
        """Ask what live workers tell, unless that was done a moment ago."""
        if self._asked is not None and time.monotonic() - self._asked < FRESH_SECONDS:
            return
        told = yield from workers.told_secrets()
        self._asked = time.monotonic()
        before = self._told if len(self._told) < MOST_NAMES else {}
        self._told = {**before, **told}
