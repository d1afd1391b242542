"""What the parts of one worker signal to each other: stop, there is room for more, something may be due."""

from __future__ import annotations

import asyncio
from math import inf

from tasklib.core.time.timing import Timing


class WorkflowSignals:
    """Wakes the services that deliver events and count ended children; set by whatever creates or finds work for
    them."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._looked = -inf
        self.children_ended = asyncio.Event()
        """Set when a child of a workflow has ended, or a workflow with children."""
        self.events_emitted = asyncio.Event()
        """Set when there are undelivered events."""

    def looked(self, *, events: bool, groups: bool) -> None:
        """Note that the claimer has looked for both kinds of work: the services need not look until its next look is
        overdue."""
        self._looked = self._timing.monotonic()
        if events:
            self.events_emitted.set()
        if groups:
            self.children_ended.set()

    @property
    def seconds_since_look(self) -> float:
        """How long ago the claimer last looked for both kinds of work."""
        return self._timing.monotonic() - self._looked


class WorkerControl:
    """Shared by all parts of one worker, within its event loop."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.is_stopping = False
        """Nothing more is claimed, and no held task starts."""
        self.nothing_to_claim = False
        """Everything due is held here, and a notification will arrive when more becomes due."""
        self.is_hurried = False
        """The drain does not wait for running tasks."""
        self.ended = asyncio.Event()
        """Set when an attempt has ended or was abandoned."""
        self.has_claimed = asyncio.Event()
        """Set when tasks are claimed, cleared when none is held any more."""
        self.workflow_signals = WorkflowSignals(timing)
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
        """Whether the claimer was woken since its last look."""
        return self._woken.is_set()

    def look(self) -> None:
        """Note that the claimer starts to look: only later calls of `wake` wake it again."""
        self.nothing_to_claim = False
        self._woken.clear()

    async def sleep(self, seconds: float) -> bool:
        """Sleep until woken, at most this long; whether it was woken."""
        woken = await self.timing.wait(self._woken, seconds)
        self._woken.clear()
        return woken
