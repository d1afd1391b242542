"""What the parts of one worker signal to each other: stop, there is room for more, something may be due."""

from __future__ import annotations

import asyncio

from tasklib.core.time.timing import Timing


class WorkerControl:
    """Shared by all parts of one worker, within its event loop."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.is_stopping = False
        """Nothing more is claimed, and nothing that is held begins."""
        self.nothing_to_claim = False
        """Everything that is due is held, and a notification comes when more is."""
        self.is_hurried = False
        """Running tasks are not waited for."""
        self.ended = asyncio.Event()
        """Set when an attempt has ended, or is not waited for any longer."""
        self.has_claimed = asyncio.Event()
        """Set when tasks are claimed, cleared when none is held any more."""
        self.children_ended = asyncio.Event()
        """Set when a child of a workflow has ended here, or a workflow with children."""
        self._woken = asyncio.Event()

    def stop(self) -> None:
        """Stop claiming and drain; called a second time, stop now."""
        if self.is_stopping:
            self.is_hurried = True
            self.ended.set()
        self.is_stopping = True
        self._woken.set()

    def wake(self) -> None:
        """Look for work now."""
        self._woken.set()

    def make_room(self) -> None:
        """Wake the claimer because more can be held, unless there is nothing to claim."""
        if not self.nothing_to_claim:
            self._woken.set()

    @property
    def is_woken(self) -> bool:
        """Whether anything has woken it since the last look."""
        return self._woken.is_set()

    def look(self) -> None:
        """Note that a look begins: only what comes from now on wakes it again."""
        self.nothing_to_claim = False
        self._woken.clear()

    async def sleep(self, seconds: float) -> None:
        """Sleep until woken, at most this long."""
        await self.timing.wait(self._woken, seconds)
        self._woken.clear()
