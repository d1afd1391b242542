"""One child process as its worker sees it: started, given one task at a time, and ended with all it has started."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from tasklib.context import TaskContext
from tasklib.errors import ProcessDied, ProcessNotReady
from tasklib.lifecycle import Ending, Event
from tasklib.storage.operations.attempts import Completion
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.calling import COMMITTED
from tasklib.worker.forwarding import show
from tasklib.worker.importing import Address
from tasklib.worker.pipe import Pipe
from tasklib.worker.sweeper import Sweeper

TERM_SECONDS = 1.0
"""How long a child may take to end after SIGTERM, before it is killed."""
LOAD_SECONDS = 60.0
"""How long a child may take to import a task."""
STOP_SECONDS = 5.0
"""How long the shutdown hooks of an idle child may take."""
POLL_SECONDS = 0.02
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
PACKAGES = str(Path(__file__).parents[2])


@dataclass(eq=False, slots=True)
class Job:
    """A task given to a child."""

    task: ClaimedTask
    context: TaskContext
    begun: Callable[[], None]
    """Called when its function is called, which may take a while: modules are imported first."""
    over: Callable[[Any], None]
    """Called once: with its Completion or Ending, COMMITTED, an exception, or None if it was ended."""
    end: Callable[[], None] = lambda: None
    """Ends it, soon and surely."""
    is_loaded: bool = False


class Child:
    """A child process; `gone` is done when nothing of it is left in the process table."""

    def __init__(
        self,
        introduction: Mapping[str, Any],
        sweeper: Sweeper,
        *,
        freed: Callable[[Child], None],
        ended: Callable[[Child], None],
    ) -> None:
        self.memory_limit_mb: int | None = introduction["memory_limit_mb"]
        self.tasks = 0
        """How many tasks it has run."""
        self.leaving = False
        """Whether it will be given no more."""
        self.job: Job | None = None
        self._known: set[str] = set()
        self._asked = self._has_exited = False
        self._verdict: ProcessNotReady | None = None
        self._sweeper = sweeper
        self._freed = freed
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = -1
        self._start(introduction)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    def run(self, job: Job, address: Address) -> None:
        """Give it a task; it must have none."""
        self.job = job
        job.end = self.end
        if job.task.name in self._known:
            job.is_loaded = True
            job.begun()
        else:
            self._after(LOAD_SECONDS, self._overdue)
        self._pipe.send([job.task.fields, address])

    def end(self) -> None:
        """End the task, and with it the process and all it has started: asked first, then killed."""
        if self.job is not None and not self._asked:
            self._asked = self.leaving = True
            with suppress(OSError):
                self._lifeline.send(b"e")
            self._signal(signal.SIGTERM)
            self._after(TERM_SECONDS, self._kill)

    def leave(self) -> None:
        """Let it run the shutdown hooks and end; it must have no task."""
        if not self.leaving:
            self.leaving = True
            self._hang_up()

    def _start(self, introduction: Mapping[str, Any]) -> None:
        work, theirs = socket.socketpair()
        lifeline, their_lifeline = socket.socketpair()
        ends = (theirs.fileno(), their_lifeline.fileno())
        command = [sys.executable, "-m", "tasklib.worker.child", *map(str, ends), str(os.getpid())]
        path = os.environ.get("PYTHONPATH")
        # In this thread, because the kernel ends the child with the thread that has started it.
        self._process = Popen(
            command,
            stdin=DEVNULL,
            stdout=_stderr(),
            stderr=_stderr(),
            pass_fds=ends,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": PACKAGES + (os.pathsep + path if path else "")},
        )
        theirs.close()
        their_lifeline.close()
        lifeline.setblocking(False)
        self._lifeline = lifeline
        self._sweeper.watch(self.pid)
        self._pipe = Pipe(work, received=self._received, ended=self._cut)
        self._pipe.send({**introduction, "python_path": path})
        if sys.platform == "linux":
            with suppress(OSError):  # an old kernel; then the end of the pipe tells
                self._pidfd = os.pidfd_open(self.pid)
                self._loop.add_reader(self._pidfd, self._exited)

    def _received(self, message: list[Any]) -> None:
        job = self.job
        if message[0] == "log":
            show(message[1])
            return
        if job is None:
            return
        task = job.task
        match message:
            case ["done", text, started, ended]:
                self._finish(job, Completion(task.id, task.version, text, started, ended))
            case ["ended", event, *rest]:
                self._finish(job, Ending(task.id, task.version, Event(event), *rest))
            case ["committed"]:
                self._finish(job, COMMITTED)
            case ["begun"]:
                self._begun(job)
            case ["progress", task.id, fraction, text]:
                job.context.progress(fraction, text)
            case ["line", task.id, level, text]:
                job.context.keep_line(level, text)
            case ["leaving"]:
                self.leaving = True
            case ["unloadable", text]:
                self.leaving = True
                self._finish(job, ProcessNotReady(f"could not load the task:\n{text}"))
            case _:
                pass  # a word about a task that has ended

    def _begun(self, job: Job) -> None:
        self._known.add(job.task.name)
        if not self._asked:
            self._after(None)
        job.is_loaded = True
        job.begun()

    def _finish(self, job: Job, result: Any) -> None:
        """The task has ended: the process is free, or ends."""
        self.job = None
        job.end = lambda: None
        self.tasks += 1
        if not self._asked:
            if self.leaving:
                self._hang_up()
            else:
                self._freed(self)
        job.over(result)

    def _overdue(self) -> None:
        if self.job is not None:
            self._verdict = ProcessNotReady(f"did not load the task within {LOAD_SECONDS:g} s")
            self.end()

    def _hang_up(self) -> None:
        self._pipe.finish()
        self._after(STOP_SECONDS, self._kill)

    def _cut(self) -> None:
        """It has closed its end of the pipe: it is ending, or of no use any more."""
        if self._pidfd < 0:
            self._loop.call_soon(self._poll)
        if not self.leaving:
            self.leaving = True
            self._after(TERM_SECONDS, self._kill)

    def _poll(self) -> None:
        if not self._has_exited:
            self._exited()
            self._loop.call_later(POLL_SECONDS, self._poll)

    def _exited(self) -> None:
        """It has ended: end what it has started, take its last words, and remove it from the process table."""
        if self._has_exited or not self._is_dead():
            return
        self._has_exited = True
        self._pipe.drain()
        # Before it is reaped: until then no other process group can have its number.
        self._signal(signal.SIGKILL)
        code, peak = self._reap()
        self._release()
        job, self.job = self.job, None
        if job is not None:
            job.over(self._verdict if self._asked else self._cause(job, code, peak))
        self._ended(self)
        self.gone.set_result(None)

    def _is_dead(self) -> bool:
        if not hasattr(os, "waitid"):
            return True  # macOS before Python 3.13, where the end of the pipe has to do
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _reap(self) -> tuple[int, int]:
        """The exit code, negative for a signal, and the peak of its memory in bytes."""
        code = peak = 0
        try:
            _, status, usage = os.wait4(self.pid, 0)
            code, peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss * RSS_UNIT
        except ChildProcessError:
            pass  # the program reaps all its children itself
        self._process.returncode = code
        return code, peak

    def _release(self) -> None:
        self._after(None)
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._pipe.close()
        self._lifeline.close()
        self._sweeper.forget(self.pid)

    def _cause(self, job: Job, code: int, peak: int) -> ProcessDied | ProcessNotReady:
        how = _how(code)
        limit = self.memory_limit_mb
        if limit is not None and code < 0 and peak >= 0.8 * (limit << 20):
            how = f"{how}: memory limit of {limit} MiB reached"
        if not job.is_loaded:
            return ProcessNotReady(f"{how} before it had loaded the task")
        return ProcessDied(how, pid=self.pid, code=code)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # No such group: all have ended.  Not permitted: on macOS the same, where it is not reaped yet.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _after(self, seconds: float | None, act: Callable[[], None] = lambda: None) -> None:
        """Do something later, instead of what was to be done later until now."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, act)


def _how(code: int) -> str:
    """What a process has died of, as a sentence about it."""
    if code >= 0:
        return f"ended itself with exit code {code}, as by os._exit()"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL":
        return "was killed by SIGKILL, as by a person or by a system that is out of memory"
    if name in _FAULTS:
        return f"crashed with {name}, as by a fault in native code"
    return f"was ended by {name}"


_FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"})


def _stderr() -> int:
    """Where a child writes: to the worker's stderr, if that is open."""
    try:
        os.fstat(2)
    except OSError:
        return DEVNULL
    return 2
