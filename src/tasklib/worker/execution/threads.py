"""Plain functions in threads: they can be asked to end, and not be made to."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tasklib.core.timing import Timing
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Attempt, AttemptRunner, Executor, StopReason
from tasklib.worker.execution.call import Caller

Inbox = queue.SimpleQueue[tuple[Attempt, Callable[[], Any]] | None]
"""Where a thread waits for its next call; None ends it."""


class Threads(Executor):
    """Runs functions that block, each in a thread: as many as are needed, reused, and replaced if one never returns.

    They are daemon threads, because a call that never ends must not keep the process alive.
    """

    name = "thread"
    stops_surely = False
    shares_process = True

    def __init__(self, caller: Caller, timing: Timing) -> None:
        self._caller = caller
        self._timing = timing
        self._idle: list[Inbox] = []
        self._lock = threading.Lock()
        self._made = 0
        self._closed = False
        self._returned: deque[tuple[Attempt, Any, BaseException | None]] = deque()
        self._collecting = False
        """Whether the event loop has been asked to take what has returned: one call is enough for all."""

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Every function that is no coroutine function."""
        return not definition.is_async

    def start(self, runner: AttemptRunner) -> None:
        """Begin one after the other, each in a thread."""
        while (attempt := runner.take(self)) is not None:
            runner.note_running(attempt)
            runner.hold_slot(attempt)
            self._begin(attempt)

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Leave the thread to itself.  A person who asks for the end waits for it: the function was asked to end."""
        if reason is not StopReason.CANCELLED:
            asyncio.get_running_loop().call_soon(self._leave, attempt)

    async def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _begin(self, attempt: Attempt) -> None:
        loop = asyncio.get_running_loop()
        try:
            call = self._caller.prepare(attempt.definition, attempt.task, attempt.context)
            with self._lock:
                inbox = self._idle.pop() if self._idle else None
            inbox = inbox or self._start_thread()
        except _NoMoreThreads:
            attempt.stop_reason = StopReason.RELEASED  # Not begun, so no attempt is spent.
            loop.call_soon(attempt.end, attempt.stopped())
        except BaseException as error:  # noqa: BLE001  the converters of the user's types run here
            # Later, so that a row of failures is no recursion.
            loop.call_soon(attempt.end, attempt.raised(error))
        else:
            attempt.work = loop.create_future()
            self._timing.expect(attempt.work)
            inbox.put((attempt, functools.partial(contextvars.copy_context().run, call)))
            attempt.limit_time()

    def _start_thread(self) -> Inbox:
        inbox: Inbox = queue.SimpleQueue()
        self._made += 1
        thread = threading.Thread(target=self._work, args=(inbox,), name=f"tasklib-task-{self._made}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise _NoMoreThreads from error
            raise
        return inbox

    def _work(self, inbox: Inbox) -> None:
        """In a thread: make one call after the other."""
        while (job := inbox.get()) is not None:
            attempt, call = job
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:  # noqa: BLE001  it is the attempt's outcome
                error = raised
            with self._lock:
                closed = self._closed
                if not closed:
                    self._idle.append(inbox)
            self._deliver(attempt, value, error)
            del job, attempt, call, value, error
            if closed:
                return

    def _deliver(self, attempt: Attempt, value: Any, error: BaseException | None) -> None:
        assert attempt.work is not None
        self._returned.append((attempt, value, error))
        if not self._collecting:
            self._collecting = True
            # A loop that is closed by now has nobody waiting for the outcome.
            with suppress(RuntimeError):
                attempt.work.get_loop().call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        """In the event loop: whatever returns from here on asks it again."""
        self._collecting = False
        while self._returned:
            attempt, value, error = self._returned.popleft()
            assert attempt.work is not None
            attempt.work.set_result(None)
            attempt.work.get_loop().call_soon(self._over, attempt, value, error)

    @staticmethod
    def _leave(attempt: Attempt) -> None:
        if attempt.work is not None and not attempt.work.done():
            attempt.abandon()

    @staticmethod
    def _over(attempt: Attempt, value: Any, error: BaseException | None) -> None:
        """The function has returned or raised."""
        if not attempt.is_ended:
            attempt.end(attempt.returned(value) if error is None else attempt.raised(error))


class _NoMoreThreads(RuntimeError):
    """The call was not made, because the program is ending and no thread can start any more."""
