"""Adding up how children ended, and notifying the workflows that wait for them.  Any worker does it; nobody leads."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.worker.control import Calls
from tasklib.worker.execution.runner import Runner
from tasklib.worker.upkeep.service import OnCall

PAUSE_SECONDS = 0.02
"""Between two folds, so that ends of many children share one."""
LOOKS = 4
"""How often it is looked meanwhile whether there is anything left to wait for."""


class GroupFold(OnCall):
    """Folds soon after a child has ended here, or a look has found one that ended elsewhere or by other means."""

    def __init__(self, queue: TaskQueue, calls: Calls, runner: Runner | None = None) -> None:
        super().__init__(queue, calls, calls.children_ended)
        self._runner = runner

    async def rest(self) -> None:
        """Return a moment after it is called, or when nobody has looked for an interval."""
        if await self.called():
            await self._await_others()
        self._call.clear()

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
