"""Plain functions in threads: they can be asked to stop, but not forced to.

Waking a thread costs more than running a short function.  So functions that were quick lately share one thread, which
calls them one after the other.  One that waits there too long, because the one before it is slow this time, gets a
thread of its own, as does every function that is not known to be quick.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from tasklib.core.calls.current import make_current
from tasklib.core.outcome import Completion
from tasklib.core.time.timing import Timer, Timing
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution import copies
from tasklib.worker.execution.attempt import Attempt, AttemptRunner, Executor
from tasklib.worker.execution.call import Caller
from tasklib.worker.execution.running_attempt import StopReason

Inbox = queue.SimpleQueue[bool]
"""Where an idle thread waits: True wakes it, False ends it."""

QUICK_SECONDS = 0.001
"""Functions that took less lately are called one after the other in one thread."""
SMOOTHING = 0.05
PATIENCE_SECONDS = 0.005
"""How long a function may wait behind others; then it gets a thread of its own."""
GATHER = 50
"""How many results a thread collects at most before it asks the event loop to take them."""
GATHER_SECONDS = 0.002


class Job(NamedTuple):
    """A call to make."""

    attempt: Attempt
    variables: contextvars.Context
    prepared: Callable[[], Any] | None
    """The whole call, if it has a transaction, dependencies or middleware."""


Returned = tuple[Attempt, Any, BaseException | None]
"""An attempt with what its function returned, or else raised."""


class Threads(Executor):
    """Runs functions that block, in threads: as many as are needed, reused, and replaced if one never returns.

    They are daemon threads, because a call that never ends must not keep the process alive.
    """

    name = "thread"
    stops_surely = False
    shares_process = True

    def __init__(self, caller: Caller, timing: Timing) -> None:
        self._caller = caller
        self._timing = timing
        self._runner: AttemptRunner
        self._jobs: deque[Job] = deque()
        self._seconds: dict[str, float] = {}
        """How long the functions of each name have taken lately."""
        self._taken = 0.0
        """When a thread last took a job."""
        self._watch: Timer | None = None
        self._idle: list[Inbox] = []
        self._lock = threading.Lock()
        self._made = 0
        self._closed = False
        self._returned: deque[Returned] = deque()
        self._collecting = False
        """Whether the event loop has been asked to take what has returned: one call is enough for all."""

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Accepts every function that is not a coroutine function."""
        return not definition.is_async

    def start(self, runner: AttemptRunner) -> None:
        """Begin as many as there are slots for: quick ones in one thread, each of the others in its own."""
        self._runner = runner
        loop = asyncio.get_running_loop()
        quick = True
        begun: list[Attempt] = []
        while (attempt := runner.take(self)) is not None:
            runner.note_running(attempt)
            runner.hold_slot(attempt)
            attempt.work = loop.create_future()
            self._timing.expect(attempt.work)
            quick = quick and self._is_quick(attempt.definition)
            begun.append(attempt)
        if not begun:
            return
        self._jobs.extend(Job(attempt, contextvars.copy_context(), self._prepare(attempt)) for attempt in begun)
        if not quick:
            self._wake(len(begun))
        elif self._timing.monotonic() - self._taken > QUICK_SECONDS or self._is_idle:
            self._wake(1)
        if quick and self._watch is None:
            self._watch = self._timing.call_later(PATIENCE_SECONDS, self._look_after)
        for attempt in begun:
            attempt.limit_time()

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Abandon the thread, unless a person has cancelled the task: then the function, which was asked to stop, may
        finish."""
        if reason is not StopReason.CANCELLED:
            asyncio.get_running_loop().call_soon(self._leave, attempt)

    async def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(False)
        if self._watch is not None:
            self._watch.cancel()

    @property
    def _is_idle(self) -> bool:
        """Whether no thread will look for jobs by itself; called under the lock under which threads decide that."""
        with self._lock:
            return len(self._idle) == self._made

    def _is_quick(self, definition: Definition) -> bool:
        # Not if it took no time at all: under a manual clock every function does, and a function that
        # waits behind a slow one would never be noticed.
        return 0 < self._seconds.get(definition.name, QUICK_SECONDS) < QUICK_SECONDS

    def _prepare(self, attempt: Attempt) -> Callable[[], Any] | None:
        """The whole call, with its transaction, dependencies and middleware; None if it has none of them."""
        definition = attempt.definition
        if not (definition.options.transactional or definition.dependencies or self._runner.settings.middleware):
            return None
        try:
            return self._caller.prepare(definition, attempt.task, attempt, attempt.refuse_late)
        except BaseException as error:  # noqa: BLE001  the converters of the user's types run here
            return functools.partial(_raise, error)

    def _wake(self, count: int) -> None:
        """Let this many more threads take jobs."""
        for _ in range(count):
            with self._lock:
                inbox = self._idle.pop() if self._idle else None
            if inbox is not None:
                inbox.put(True)
                continue
            try:
                self._start_thread()
            except RuntimeError as error:
                self._refuse(error)
                return

    def _start_thread(self) -> None:
        inbox: Inbox = queue.SimpleQueue()
        self._made += 1
        thread = threading.Thread(target=self._work, args=(inbox,), name=f"tasklib-task-{self._made}", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._made -= 1
            raise

    def _refuse(self, error: RuntimeError) -> None:
        """Fail the waiting attempts because no thread can start; at the end of the program, release them instead."""
        for job in self._take_all():
            attempt = job.attempt
            if "shutdown" in str(error):
                attempt.stop_reason = StopReason.RELEASED  # Not started, so no attempt is spent.
            self._returned.append((attempt, None, error))
        # Later, so that many failures in a row do not recurse.
        asyncio.get_running_loop().call_soon(self._collect)

    def _take_all(self) -> list[Job]:
        jobs: list[Job] = []
        with suppress(IndexError):
            while True:
                jobs.append(self._jobs.popleft())
        return jobs

    def _look_after(self) -> None:
        """Check that neither a function nor a result waits long behind a slow function."""
        self._watch = None
        # Read before the results are taken: the last job may be the slow one, and results collected before it
        # would have to wait for it.
        some_waited = bool(self._jobs)
        self._collect()
        overdue = self._timing.monotonic() - PATIENCE_SECONDS
        if late := sum(job.attempt.started <= overdue for job in list(self._jobs)):
            self._wake(late)
        if (some_waited or self._jobs) and self._watch is None:
            self._watch = self._timing.call_later(PATIENCE_SECONDS, self._look_after)

    def _work(self, inbox: Inbox) -> None:
        """In a thread: make one call after the other."""
        while True:
            self._make_calls()
            with self._lock:
                if self._jobs:
                    continue
                if self._closed:
                    return
                self._idle.append(inbox)
            if not inbox.get():
                return

    def _make_calls(self) -> None:
        """Call what waits, until nothing does."""
        monotonic = self._timing.monotonic
        loop: asyncio.AbstractEventLoop | None = None
        gathered, asked = 0, monotonic()
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                break
            assert job.attempt.work is not None
            loop = job.attempt.work.get_loop()
            self._taken = began = monotonic()
            self._returned.append(make_call(job))
            ended = monotonic()
            self._note(job.attempt.definition.name, ended - began)
            gathered += 1
            if ended - began > QUICK_SECONDS or ended - asked > GATHER_SECONDS or gathered >= GATHER:
                gathered, asked = 0, ended
                self._ask(loop)
            del job
        if gathered and loop is not None:
            self._ask(loop)

    def _note(self, name: str, seconds: float) -> None:
        before = self._seconds.get(name, seconds)
        self._seconds[name] = before + SMOOTHING * (seconds - before)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the event loop take what has returned."""
        if not self._collecting:
            self._collecting = True
            # If the loop is closed by now, nothing waits for the outcome.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        """Take the results, in the event loop; later ones ask for another call."""
        self._collecting = False
        ends: list[tuple[Attempt, Completion]] = []
        try:
            while self._returned:
                attempt, value, error = self._returned.popleft()
                assert attempt.work is not None
                attempt.work.set_result(None)
                if attempt.is_ended:
                    continue
                ended = attempt.returned(value) if error is None else attempt.raised(error)
                if isinstance(ended, Completion):
                    attempt.settle()
                    ends.append((attempt, ended))
                else:
                    attempt.end(ended)
        finally:
            if ends:
                self._runner.completed(ends)

    @staticmethod
    def _leave(attempt: Attempt) -> None:
        if attempt.work is not None and not attempt.work.done():
            attempt.abandon()


def make_call(job: Job) -> Returned:
    """Call the function, unless its attempt has ended while it waited."""
    attempt, variables, prepared = job
    try:
        if attempt.is_ended:
            return attempt, None, None
        attempt.begin()
        before = copies.forks
        try:
            return attempt, variables.run(_call, attempt) if prepared is None else variables.run(prepared), None
        finally:
            if copies.forks != before:
                copies.end_copy()
    except BaseException as error:  # noqa: BLE001  it is the attempt's outcome
        return attempt, None, error


def _call(attempt: Attempt) -> Any:
    """The stored arguments are converted here, so that one that does not fit is this task's failure alone."""
    definition = attempt.definition
    args, kwargs = definition.call_with(attempt.task.kwargs, attempt)
    make_current(attempt)
    return definition.function(*args, **kwargs)


def _raise(error: BaseException) -> NoReturn:
    raise error
