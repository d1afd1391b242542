"""What the parts of one worker signal to each other: stop, there is room for more, something may be due."""

from __future__ import annotations

import asyncio
from math import inf

from tasklib.core.time.timing import Timing


class Calls:
    """Calls to those who deliver events and count children: by whoever causes work for them, or finds some."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._looked = -inf
        self.children_ended = asyncio.Event()
        """Set when a child of a workflow has ended, or a workflow with children."""
        self.events_emitted = asyncio.Event()
        """Set when there are events that nobody has delivered."""

    def looked(self, *, events: bool, groups: bool) -> None:
        """Somebody has looked for all: until the next look is overdue they need not look for themselves."""
        self._looked = self._timing.monotonic()
        if events:
            self.events_emitted.set()
        if groups:
            self.children_ended.set()

    @property
    def seconds_since_look(self) -> float:
        """How long ago somebody looked for all."""
        return self._timing.monotonic() - self._looked


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
        self.calls = Calls(timing)
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

    async def sleep(self, seconds: float) -> bool:
        """Sleep until woken, at most this long; whether it was woken."""
        woken = await self.timing.wait(self._woken, seconds)
        self._woken.clear()
        return woken
