"""A worker process, in its supervisor: started, watched, and ended with all its children."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tasklib.core.timing import Timing
from tasklib.worker.supervisor.channel import VARIABLE, Channel
from tasklib.worker.supervisor.heartbeat_proxy import Databases, HeartbeatProxy

DUMP_SECONDS = 1.0
"""How long a process whose event loop is blocked may take to write where it stands, before it is killed."""

log = logging.getLogger("tasklib.worker")


class WorkerProcess:
    """One worker process, from its start to its end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        databases: Databases,
        timing: Timing,
        *,
        restarts: int,
        started: asyncio.Event,
    ) -> None:
        """`started` is set when it has imported what it shall work on."""
        self._channel, theirs = Channel.pair()
        with theirs:
            # A session of its own: the terminal's Ctrl-C reaches only the supervisor, and one signal its children too.
            self._process = subprocess.Popen(
                command,
                env={**environment, VARIABLE: f"{theirs.fileno()}:{self._channel.running.descriptor}:{restarts}"},
                pass_fds=[theirs.fileno(), self._channel.running.descriptor],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.heartbeat = HeartbeatProxy(self._channel, databases, self, timing)
        self._timing = timing
        self.born = timing.monotonic()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code, or minus the signal that ended it."""
        self.has_started = False
        """Whether it has imported what it shall work on."""
        self.has_worked = False
        """Whether it was ever known to the database."""
        self.is_ending = False
        """Whether its work is done and only its exit remains."""
        self.is_paused = False
        self._started = started
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._listen)
        log.debug("worker process %d started", self.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return not self.ended.done()

    @property
    def is_working(self) -> bool:
        """Whether it has neither ended nor been paused with SIGSTOP."""
        return self.is_alive and not self.is_paused

    def collect(self) -> None:
        """Note whether it has ended, or was paused; called after SIGCHLD."""
        while self.is_alive:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid == 0:
                return
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self.is_paused = os.WIFSTOPPED(status)
                log.warning("worker process %d was %s", pid, "stopped" if self.is_paused else "continued")
            else:
                self._has_ended(os.waitstatus_to_exitcode(status))

    def stop(self, *, now: bool) -> None:
        """Ask it to drain and end, or to end now.

        Not by a second signal: a service manager may signal every process of a service, which is one more already.
        """
        if self.is_alive:
            self._channel.send("stop", now=now)
            os.kill(self.pid, signal.SIGTERM)  # for a process that does not listen yet

    def dump_and_kill(self) -> None:
        """Kill it, after it has written where it hangs."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGABRT)
        self._timing.call_later(DUMP_SECONDS, self.kill)

    def kill(self) -> None:
        """End it and every process of its group at once."""
        if self.is_alive:
            self._kill_group()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _has_ended(self, code: int) -> None:
        self._process.returncode = code  # Popen did not wait for it, and would complain.
        # Children it left behind must not go on with tasks that are about to run elsewhere.
        self._kill_group()
        self._listen()
        self.heartbeat.has_died(self._channel.running.read())
        asyncio.get_running_loop().remove_reader(self._channel.fileno())
        self._channel.close()
        self.ended.set_result(code)

    def _listen(self) -> None:
        for message in self._channel.receive():
            self.has_started = True
            self._started.set()
            self.is_ending = self.is_ending or message["kind"] == "ending"
            self.heartbeat.receive(message)
            self.has_worked = self.has_worked or self.heartbeat.instance is not None
        if self._channel.is_closed:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())


async def in_thread(work: Callable[[], None], timing: Timing, seconds: float) -> None:
    """Do blocking work in a thread that never keeps this process alive; returns when done, or after so long."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        try:
            work()
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="tasklib-supervisor", daemon=True).start()
    await timing.wait(done, seconds)
