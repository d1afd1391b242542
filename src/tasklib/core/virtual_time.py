"""Time that is moved by hand: an event loop whose clock jumps to the next timer as soon as nothing can run.

A day of a worker's life takes as long as its work does.  What runs in threads is really waited for, and takes no time.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.clock import ManualClock
from tasklib.core.timing import Drive, Runs, Steps, SystemTiming, Timing, Work

RESOLUTION_SECONDS = 0.001
"""Time moves in whole milliseconds, as SQLite counts them: what is due at a moment is never found due a little later,
again and again, while time stands still."""
ROUNDING_SECONDS = 1e-4
"""More than SQLite's error when it subtracts moments: a timer for something that is due at 4 s is set for 4.00001 s."""
THREADS = 8


class VirtualTiming(SystemTiming):
    """The time of a `ManualClock`, on a `VirtualLoop` of the same clock; everything runs in that event loop."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._origin = clock.now()

    def monotonic(self) -> float:
        """Seconds since this object was made."""
        return (self.clock.now() - self._origin).total_seconds()

    def drive(self, name: str, steps: Steps, database: Runs) -> Drive:
        """Take the steps in an asyncio task: nothing blocks this event loop for any time."""
        return _Task(name, steps, database, self)

    def expect(self, outcome: asyncio.Future[Any]) -> None:
        """Let no time pass until this is done."""
        loop = outcome.get_loop()
        if isinstance(loop, VirtualLoop):
            loop.hold_until(outcome)


class _Task:
    """Takes steps in an asyncio task."""

    def __init__(self, name: str, steps: Steps, database: Runs, timing: Timing) -> None:
        self._steps = steps
        self._database = database
        self._timing = timing
        self._task = own_task(self._run())
        self._task.set_name(name)

    def end(self) -> None:
        """Take no further step."""
        self._task.cancel()

    async def ended(self) -> None:
        """Return when the last step is over."""
        if self._task is not asyncio.current_task():
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        resume: Callable[[Any], float | Work] = self._steps.send
        answer: Any = None
        with suppress(StopIteration):
            while True:
                step = resume(answer)
                resume, answer = self._steps.send, None
                if not callable(step):
                    await self._timing.sleep(step)
                    continue
                try:
                    answer = await self._database.arun(step)
                except Exception as error:  # noqa: BLE001  the steps decide what it means
                    resume, answer = self._steps.throw, error


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a `ManualClock`, which it moves to its next timer when nothing can run."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._origin = clock.now()
        self._held = 0
        super().__init__(_Selector(self))
        self._clock_resolution = ROUNDING_SECONDS
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tasklib-virtual-time")
        self.set_default_executor(self._threads)

    def time(self) -> float:
        """Seconds of the clock since this event loop was made."""
        return (self._clock.now() - self._origin).total_seconds()

    def pass_time(self, seconds: float) -> None:
        """Move the clock forward, to a whole millisecond."""
        steps = math.ceil((self.time() + seconds) / RESOLUTION_SECONDS - ROUNDING_SECONDS / RESOLUTION_SECONDS)
        moment: datetime = self._origin + timedelta(milliseconds=steps)
        self._clock.advance((moment - self._clock.now()).total_seconds())

    @property
    def is_held(self) -> bool:
        """Whether a thread works on something that must be over before time passes."""
        return self._held > 0

    def hold_until(self, outcome: asyncio.Future[Any]) -> None:
        """Let no time pass until this is done."""
        self._held += 1
        outcome.add_done_callback(self._release)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As any event loop; no time passes until the thread has returned, also if nobody waits for it any longer."""
        working = (executor or self._threads).submit(func, *args)
        outcome = asyncio.wrap_future(working, loop=self)
        self._held += 1
        # Called after that of the outcome, and so time passes only after the outcome is known here.
        working.add_done_callback(self._release_from_thread)
        return outcome

    def _release_from_thread(self, working: object) -> None:
        with suppress(RuntimeError):  # this event loop is closed
            self.call_soon_threadsafe(self._release)

    def _release(self, *_: object) -> None:
        self._held -= 1


class _Selector(selectors.DefaultSelector):
    """Waits in virtual time: for threads and sockets as long as it takes, for timers not at all."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._loop.is_held:
            return super().select(None)
        self._loop.pass_time(timeout)
        return []
