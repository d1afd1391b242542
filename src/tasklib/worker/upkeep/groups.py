"""Adding up how children ended, and waking the workflows that wait for them.  Any worker does it; there is no
leader."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.worker.control import WorkflowSignals
from tasklib.worker.execution.runner import Runner
from tasklib.worker.upkeep.service import OnSignal

PAUSE_SECONDS = 0.02
"""The pause between two folds, so that many children that end share one."""
LOOKS = 4
"""How many times during the pause to check whether there is anything left to wait for."""


class GroupFold(OnSignal):
    """Folds soon after a child has ended here, or after a poll has found one that ended elsewhere."""

    def __init__(self, queue: TaskQueue, signals: WorkflowSignals, runner: Runner | None = None) -> None:
        super().__init__(queue, signals, signals.children_ended)
        self._runner = runner

    async def rest(self) -> None:
        """Return shortly after a signal, or when the claimer has not looked for an interval."""
        if await self.signalled():
            await self._await_others()
        self._signal.clear()

    async def step(self) -> None:
        """Fold until nothing is left."""
        while await self.database.arun(fold_groups):
            await self._await_others()

    async def _await_others(self) -> None:
        """Wait a moment for the ends of other children, unless this worker holds none: then the last has just ended."""
        for _ in range(LOOKS):
            if self._runner is not None and not self._runner.holds_children:
                return
            await self.timing.sleep(PAUSE_SECONDS / LOOKS)
