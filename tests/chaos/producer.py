"""A producer that never gives up: it submits a mixture of tasks and logs each one only when it was acknowledged."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tasklib import TaskQueue
from tasklib.errors import StorageError
from tests.chaos.history import History

Mixture = Callable[[random.Random], tuple[str, dict[str, Any]]]
BATCH = 20


def mixed(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Mostly quick, some slow, some in child processes, some that fail the first time, some with an effect."""
    name = chance.choices(("quick", "nap", "work", "apart", "flaky", "effect"), (50, 15, 15, 5, 5, 10))[0]
    return name, {"seconds": round(chance.uniform(0.001, 0.1), 4)} if name in ("nap", "work", "apart") else {}


class Producer:
    """Submits in a thread of its own, at the pace at which the tasks are run."""

    def __init__(
        self, queue: TaskQueue, history: History, total: int, mixture: Mixture = mixed, *, backlog: int = 500
    ) -> None:
        self.acknowledged: list[UUID] = history.acknowledged
        self._history = history
        self.names: dict[UUID, str] = {}
        self._queue = queue
        self._total = total
        self._mixture = mixture
        self._backlog = backlog
        self._chance = random.Random(total)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="producer", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Submit no more."""
        self._stop.set()
        self._thread.join()

    def _produce(self) -> None:
        while len(self.acknowledged) < self._total and not self._stop.is_set():
            batch = [self._mixture(self._chance) for _ in range(min(BATCH, self._total - len(self.acknowledged)))]
            try:
                if self._queue.count(state=["pending", "running"]) > self._backlog:
                    self._stop.wait(0.05)
                    continue
                ids = self._queue.submit_new([self._queue.new_by_name(n, p, max_attempts=4) for n, p in batch])
            except StorageError:
                self._history.doubtful += len(batch)
                self._stop.wait(0.05)
                continue
            self.acknowledged += ids
            self.names.update(zip(ids, (name for name, _ in batch), strict=True))
