"""How the process sees time pass: reading it, sleeping, waiting, timers, and steps that a busy event loop cannot delay.

Workers, their supervisor and the service ask one `Timing`, which their queue owns, and nothing else.  `SystemTiming` is
the machine's; tests give another, whose time they move (`core/time/virtual_time.py`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

STOP_SECONDS = 5.0
"""How long the end of a thread is waited for whose last step does not return."""

Work = Callable[[], Any]
"""Makes an operation of the storage."""
Steps = Generator[float | Work, Any, None]
"""A state machine: yields seconds to rest, or an operation whose answer or error it receives."""


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make it."""


class Runs(Protocol):
    """The database, as far as steps need it."""

    def run(self, make: Work) -> Any:
        """The answer to an operation, blocking this thread."""

    async def arun(self, make: Work) -> Any:
        """The answer to an operation, awaited."""


class Drive(Protocol):
    """What takes the steps of a state machine."""

    def end(self) -> None:
        """Take no further step."""

    async def ended(self) -> None:
        """Return when the last step is over."""


class Timing(Protocol):
    """The time of one process.  Its moments are seconds since some moment, never set back."""

    def monotonic(self) -> float:
        """This moment."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Return after so many seconds."""

    def timeout(self, seconds: float | None, /) -> AbstractAsyncContextManager[Any]:
        """Cancel the block after so many seconds, and raise TimeoutError; None: never."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Return when the event is set, or after so many seconds; whether it is set."""
        ...

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        """Call something in this event loop after so many seconds."""
        ...

    def drive(self, name: str, steps: Steps, database: Runs) -> Drive:
        """Take the steps from now on, beside the event loop and whatever blocks it."""
        ...

    def expect(self, outcome: asyncio.Future[Any]) -> None:
        """Note that a thread works on this: virtual time stands still until it is done."""


class SystemTiming:
    """The machine's own time."""

    # Called several times for each task: without a method of Python's in between.
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
    timeout = staticmethod(asyncio.timeout)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Return when the event is set, or after so many seconds; whether it is set."""
        with suppress(TimeoutError):
            async with self.timeout(seconds):
                await event.wait()
        return event.is_set()

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        """Call something in this event loop after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, call, *args)

    def drive(self, name: str, steps: Steps, database: Runs) -> Drive:
        """Take the steps in a thread of their own."""
        return _Thread(name, steps, database)

    def expect(self, outcome: asyncio.Future[Any]) -> None:
        """Nothing to do: the machine's time does not stand still."""


class _Thread:
    """Takes steps in a thread."""

    def __init__(self, name: str, steps: Steps, database: Runs) -> None:
        self._steps = steps
        self._database = database
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take no further step."""
        self._end.set()

    async def ended(self) -> None:
        """Return when the last step is over, or should have been long ago."""
        if self._thread is not threading.current_thread():
            await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def _run(self) -> None:
        resume: Callable[[Any], float | Work] = self._steps.send
        answer: Any = None
        with suppress(StopIteration):
            while not self._end.is_set():
                step = resume(answer)
                resume, answer = self._steps.send, None
                if not callable(step):
                    self._end.wait(step)
                    continue
                try:
                    answer = self._database.run(step)
                except Exception as error:  # noqa: BLE001  the steps decide what it means
                    resume, answer = self._steps.throw, error
