"""Adding up how children ended, and waking the workflows that wait for them.  Any worker does it; there is no
leader."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.worker.control import WorkflowSignals
from tasklib.worker.execution.runner import Runner
from tasklib.worker.upkeep.service import OnSignal

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.1
"""The pause between two folds, so that many children that end share one."""
SHARE = 0.1
"""How much of a worker's time it folds at most, unless that means a longer pause."""
LOOKS = 4
"""How many times during a pause to check whether there is anything left to wait for."""


class GroupFold(OnSignal):
    """Folds soon after a child has ended here, or after a poll has found one that ended elsewhere."""

    def __init__(self, queue: TaskQueue, signals: WorkflowSignals, runner: Runner | None = None) -> None:
        super().__init__(queue, signals, signals.children_ended)
        self._runner = runner
        self._pause = SHORTEST_PAUSE

    async def rest(self) -> None:
        """Return shortly after a signal, or when the claimer has not looked for an interval."""
        if await self.signalled():
            await self._await_others()
        self._signal.clear()

    async def step(self) -> None:
        """Fold until nothing is left."""
        while True:
            began = self.timing.monotonic()
            if not await self.database.arun(fold_groups):
                return
            took = self.timing.monotonic() - began
            self._pause = min(max(SHORTEST_PAUSE, took * (1 / SHARE - 1)), LONGEST_PAUSE)
            await self._await_others()

    async def _await_others(self) -> None:
        """Wait a moment for the ends of other children, unless this worker holds none: then the last has just ended."""
        for _ in range(LOOKS):
            if self._runner is not None and not self._runner.holds_children:
                return
            await self.timing.sleep(self._pause / LOOKS)
