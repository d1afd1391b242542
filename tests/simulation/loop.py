"""An event loop whose clock jumps to the next timer when nothing can run, shared by simulated processes.

Every callback belongs to the process in whose context it was scheduled.  A process that is killed is never scheduled
again; one that is frozen keeps its callbacks until it is resumed.  Each has a monotonic clock of its own.
"""

from __future__ import annotations

import asyncio
import heapq
import warnings
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

CURRENT: ContextVar[Process | None] = ContextVar("simulated process", default=None)


class Stalled(Exception):
    """Nothing can run any more, and no timer is set."""


class Spinning(Exception):
    """Callbacks follow each other without end, and no time passes."""


RESOLUTION_SECONDS = 1e-6
MOST_AT_ONCE = 20_000
"""Callbacks in one moment that are still called work."""


class Process:
    """A simulated process: it lives, stands still or is dead, and its clock may run too fast or too slow."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_frozen = False
        self.queue: Any = None
        """The queue of its own, if it has one."""
        self.wall_offset = 0.0
        """By how much its wall clock is wrong."""
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        self.on_death: list[Callable[[], None]] = []
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._resumed = 0.0
        self._rate = 1.0
        self._global = loop.now
        self._local = loop.now

    def __repr__(self) -> str:
        return self.name

    def local(self, moment: float) -> float:
        """What its monotonic clock shows at a moment of the simulation."""
        return self._local + (moment - self._global) * self._rate

    def moment(self, local: float) -> float:
        """The moment of the simulation at which its clock will show this."""
        return self._global + (local - self._local) / self._rate

    def drift(self, rate: float) -> None:
        """From now on its clock runs at this rate; timers that are set already keep their moments."""
        now = self._loop.now
        self._local, self._global, self._rate = self.local(now), now, rate

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return self.context.copy().run(self._loop.create_task, work)

    def freeze(self) -> None:
        """Stand still: nothing of it runs, and nothing of it knows."""
        self.is_frozen = True

    def resume(self) -> None:
        """Go on; what was due meanwhile is late."""
        self.is_frozen = False
        self._resumed = self._loop.now
        held, self._held = self._held, []
        for handle in held:
            self._loop.put_back(handle)

    def has_run_for(self, seconds: float) -> bool:
        """Whether it was not frozen in so many seconds."""
        return not self.is_frozen and self._loop.now - self._resumed > seconds

    def kill(self) -> None:
        """End without any cleaning up: its coroutines are not cancelled, they are never scheduled again."""
        self.is_alive = False
        self._held.clear()
        self._loop.bury_tasks()
        for call in self.on_death:
            call()

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback until it goes on."""
        self._held.append(handle)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their moments, and moves its clock from one to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.steps = 0
        self._began = 0
        self._buried: set[asyncio.Task[Any]] = set()
        self.set_exception_handler(self._note_error)
        self.errors: list[str] = []

    def time(self) -> float:
        """The clock of the process that asks."""
        process = CURRENT.get()
        return self.now if process is None else process.local(self.now)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """As any loop's; `when` is a moment of the process's own clock."""
        process = (context or copy_context()).get(CURRENT)
        if process is not None:
            when = process.moment(when)
        return super().call_at(when, callback, *args, context=context)

    def call_in(self, seconds: float, callback: Any, *args: Any, context: Context) -> asyncio.TimerHandle:
        """Call in so many seconds of the simulation, for the process of the context."""
        return super().call_at(self.now + seconds, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call at once: there is one thread.  Nothing that really blocks is called here."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  it travels to whoever awaits the outcome
            future.set_exception(error)
        return future

    def put_back(self, handle: asyncio.Handle) -> None:
        """Run a callback that was kept."""
        self._ready.append(handle)

    def bury_tasks(self) -> None:
        """Keep every asyncio task, so that those of a killed process are not ended by the garbage collector."""
        self._buried.update(asyncio.all_tasks(self))

    def discard_tasks(self) -> None:
        """End what is left when the simulation is over and nothing looks any more."""
        left = self._buried | asyncio.all_tasks(self)
        self._buried = set()
        self._ready.clear()
        self._scheduled.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in left:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with suppress(BaseException):  # it may want to await something, or to raise
                        task.get_coro().close()

    def _run_once(self) -> None:
        timers = self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not self._ready and not self._stopping:
            if not timers:
                raise Stalled
            # Always a little later: a wait that rounding made too short is not repeated in the same moment for ever.
            self.now = max(self.now + RESOLUTION_SECONDS, timers[0]._when)
            self._began = self.steps
        if self.steps > self._began + MOST_AT_ONCE:
            raise Spinning(f"more than {MOST_AT_ONCE} callbacks without a pause, the last of {CURRENT.get()}")
        while timers and timers[0]._when <= self.now:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            self._ready.append(handle)
        for _ in range(len(self._ready)):
            self._run(self._ready.popleft())

    def _run(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(CURRENT)
        if process is not None and not process.is_alive:
            return
        if process is not None and process.is_frozen:
            process.hold(handle)
            return
        self.steps += 1
        handle._run()

    def _write_to_self(self) -> None:
        """Nobody sleeps in a system call that would have to be ended."""

    def _process_events(self, event_list: Any) -> None:
        """There are no files to watch."""

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
