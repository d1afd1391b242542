"""A child process of the worker's as the operating system sees it: started, signalled with its group, and reaped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Protocol

from tasklib.worker.execution.processes.orphan_killer import OrphanKiller

POLL_SECONDS = 0.02
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
CHILD = "tasklib.worker.execution.processes.child_main"
"""The main program of a child process."""
PACKAGES = str(Path(__file__).parents[4])
TERM_SECONDS = 1.0
"""How long a child may take to end after SIGTERM, before it is killed."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended."""

    code: int
    """As an exit code: negative for a signal."""
    peak_bytes: int
    """The most memory it has used."""

    @property
    def how(self) -> str:
        """The cause, as a sentence about the process."""
        if self.code >= 0:
            return f"ended itself with exit code {self.code}, as by os._exit()"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        if name == "SIGKILL":
            return "was killed by SIGKILL, as by a person or by a system that is out of memory"
        if name in _FAULTS:
            return f"crashed with {name}, as by a fault in native code"
        return f"was ended by {name}"

    def reached(self, limit_mb: int | None) -> bool:
        """Whether it died because it reached its memory limit."""
        return limit_mb is not None and self.code < 0 and self.peak_bytes >= 0.8 * (limit_mb << 20)

    def too_little(self, limit_mb: int | None) -> str:
        """For a process that died while starting: a hint that its memory limit may be the cause, with the remedy; else
        "".

        The exit code does not show it: whatever runs out of memory first, such as a thread, often does not report it.
        """
        if limit_mb is None or self.peak_bytes < 0.5 * (limit_mb << 20):
            return ""
        return (
            f"; its memory limit is {limit_mb} MiB, and it had used {self.peak_bytes >> 20} MiB to start Python and to "
            "import the program: give memory_limit_mb or --memory-limit more than that"
        )


class ProcessOwner(Protocol):
    """The owner of an OsProcess, called when it has died."""

    def died(self, death: Death) -> None:
        """Called once, when nothing of it is left in the process table."""


class OsProcess:
    """A fresh interpreter in a session of its own, so that it and all it starts can be signalled together."""

    def __init__(self, descriptors: Sequence[int], orphan_killer: OrphanKiller, owner: ProcessOwner) -> None:
        self._orphan_killer = orphan_killer
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._pidfd = -1
        self._process = start_child(descriptors, output=_stderr())
        orphan_killer.watch(self.pid)
        if sys.platform == "linux":
            with suppress(OSError):  # a kernel before 5.3
                self._pidfd = os.pidfd_open(self.pid)
                self._loop.add_reader(self._pidfd, self._exited)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    def terminate(self) -> None:
        """Ask it and all it has started to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and all it has started."""
        self._signal(signal.SIGKILL)

    def look(self) -> None:
        """Check whether it has ended; for systems without pidfd, called when something else shows that it is ending."""
        if self._pidfd < 0 and not self._is_over:
            self._exited()
            self._loop.call_later(POLL_SECONDS, self.look)

    def _exited(self) -> None:
        """Once it has ended: end what it has started, and remove it from the process table."""
        if self._is_over or not self._is_dead():
            return
        self._is_over = True
        # Before it is reaped: until then no other process group can have its number.
        self.kill()
        death = self._reap()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._orphan_killer.forget(self.pid)
        self._owner.died(death)

    def _is_dead(self) -> bool:
        if not hasattr(os, "waitid"):
            return True  # macOS before Python 3.13: the caller only asks when it is ending
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _reap(self) -> Death:
        code = peak = 0
        try:
            _, status, usage = os.wait4(self.pid, 0)
            code, peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss * RSS_UNIT
        except ChildProcessError:
            pass  # the program reaps all its children itself
        self._process.returncode = code
        return Death(code, peak)

    def _signal(self, number: signal.Signals) -> None:
        # No such group: all have ended.  Not permitted: on macOS the same, where it is not reaped yet.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


_FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"})


def start_child(descriptors: Sequence[int], *, output: int | None = None) -> Popen[bytes]:
    """Start a child process that inherits these descriptors, and writes to `output` instead of to this process's own.

    The kernel ends it with the thread that calls this.
    """
    path = os.environ.get("PYTHONPATH")
    return Popen(
        # With -P, because a file of the program, say queue.py, must not shadow Python's own before sys.path is set.
        [sys.executable, "-P", "-m", CHILD, *map(str, descriptors), str(os.getpid())],
        stdin=DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": PACKAGES + (os.pathsep + path if path else "")},
    )


def _stderr() -> int:
    """Where a child writes: to the worker's stderr, if that is open."""
    try:
        os.fstat(2)
    except OSError:
        return DEVNULL
    return 2
