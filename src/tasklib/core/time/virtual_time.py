"""Time that is moved by hand: an event loop whose clock jumps to the next timer as soon as nothing can run.

A day of a worker's life takes as long as its work does.  What runs in threads is really waited for, and takes no time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from typing import Any

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.time.clock import ManualClock
from tasklib.core.time.timing import Drive, Runs, Steps, SystemTiming, Timing, Work

RESOLUTION_SECONDS = 0.001
"""Time moves in whole milliseconds, as SQLite counts them: who waits for a smaller rest waits for one of these, and not
again and again while time stands still."""
THREADS = 8
PATIENCE_SECONDS = 60.0
"""Real seconds in which a thread must return; one that waits for time to pass would wait for ever."""


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
        self._clock_resolution = RESOLUTION_SECONDS / 2  # Every timer is set for a whole millisecond.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tasklib-virtual-time")
        self.set_default_executor(self._threads)

    def time(self) -> float:
        """Seconds of the clock since this event loop was made."""
        return (self._clock.now() - self._origin).total_seconds()

    def pass_time(self, seconds: float) -> None:
        """Move the clock forward."""
        self._clock.advance(max(round(seconds, 3), RESOLUTION_SECONDS))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As any event loop, at a whole millisecond; one that has not come yet is at least the next."""
        now = self.time()
        if when > now:
            when = max(round(when, 3), round(now + RESOLUTION_SECONDS, 3))
        return super().call_at(when, callback, *args, context=context)

    @property
    def is_held(self) -> bool:
        """Whether a thread works on something that must be over before time passes."""
        return self._held > 0

    def hold_until(self, outcome: asyncio.Future[Any]) -> None:
        """Let no time pass until this is done."""
        self._held += 1
        outcome.add_done_callback(self._release)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As any event loop; no time passes until the thread has returned, even if its outcome is no longer awaited."""
        working = (executor or self._threads).submit(func, *args)
        outcome = asyncio.wrap_future(working, loop=self)
        self._held += 1
        # Called after that of the outcome, and so time passes only after the outcome is known here.
        working.add_done_callback(self._release_from_thread)
        return outcome

    async def shutdown_default_executor(self, *limit: float | None) -> None:
        """As any event loop; no time passes until the threads have ended."""
        self._held += 1
        await super().shutdown_default_executor(*limit)
        self._held -= 1

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
        if self._loop.is_held:
            ready = super().select(PATIENCE_SECONDS)
            if not ready:
                raise RuntimeError(
                    f"a thread has not returned for {PATIENCE_SECONDS:g} s, in which time stood still: "
                    "does it wait for something that only the passing of time brings?"
                )
            return ready
        if timeout is None:
            return super().select(None)
        self._loop.pass_time(timeout)
        return []
