"""A worker process, in its supervisor: started, watched, and ended with all its children.

The supervisor sends its heartbeats too, because no user code can delay them there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, Popen
from typing import Any
from uuid import UUID

from tasklib.core.config import Config
from tasklib.core.time.timing import Steps, Timing
from tasklib.errors import TaskLibError
from tasklib.storage import connect
from tasklib.storage.database import Database
from tasklib.storage.operations import workers
from tasklib.worker.supervisor.channel import VARIABLE, Message, SupervisorChannel
from tasklib.worker.upkeep.heartbeat import Heartbeat

RENEW = 1 / 3
"""The part of a lease after which the supervisor renews the leases of a blocked event loop, as the worker does
itself."""
DUMP_SECONDS = 1.0
"""How long a process whose event loop is blocked may take to write its tracebacks, before it is killed."""

log = logging.getLogger("tasklib.worker")


class WorkerProcess:
    """One worker process, from its start to its end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        databases: dict[Config, Database],
        timing: Timing,
        *,
        restarts: int,
        started: asyncio.Event,
    ) -> None:
        """`started` is set when it has imported its tasks."""
        self._channel, theirs = SupervisorChannel.pair()
        with theirs:
            # A session of its own: the terminal's Ctrl-C reaches only the supervisor, and one signal its children too.
            self._process = Popen(
                command,
                env={**environment, VARIABLE: f"{theirs.fileno()}:{self._channel.running.descriptor}:{restarts}"},
                pass_fds=[theirs.fileno(), self._channel.running.descriptor],
                stdin=DEVNULL,
                start_new_session=True,
            )
        self.heartbeat = HeartbeatProxy(self._channel, databases, self, timing)
        self._timing = timing
        self.born = timing.monotonic()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code, or minus the signal that ended it."""
        self.has_started = False
        """Whether it has imported its tasks."""
        self.has_worked = False
        """Whether it was ever registered in the database."""
        self.is_ending = False
        """Whether its work is done and only its exit remains."""
        self.is_paused = False
        self.report: Message = {}
        """The last report of its worker."""
        self._started = started
        self._was_running: set[int] = set()
        asyncio.get_running_loop().add_reader(self._channel, self._listen)
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
            self._channel.notify("stop", now=now)
            os.kill(self.pid, signal.SIGTERM)  # for a process that does not read the channel yet

    def dump_and_kill(self) -> None:
        """Kill it after it has written its tracebacks."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGABRT)
        self._timing.call_later(DUMP_SECONDS, self.kill)

    def kill(self) -> None:
        """End it and every process of its group at once."""
        if self.is_alive:
            self._kill_group()

    def release_tasks(self, *, stopping: bool) -> None:
        """Release the tasks it held when it ended, so that other workers run them.  Blocks."""
        self.heartbeat.release_tasks(self._was_running, stopping=stopping)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _has_ended(self, code: int) -> None:
        self._process.returncode = code  # Popen did not wait for the process itself, and would warn.
        # Children it left behind must not go on with tasks that are about to run elsewhere.
        self._kill_group()
        self._listen()
        self.heartbeat.stop()
        self._was_running = self._channel.running.read()
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        self.ended.set_result(code)

    def _listen(self) -> None:
        for message in self._channel.receive():
            self.has_started = True
            self._started.set()
            self.is_ending = self.is_ending or message["kind"] == "ending"
            if message["kind"] == "report":
                self.report = message
            self.heartbeat.receive(message)
            self.has_worked = self.has_worked or self.heartbeat.instance is not None
        if self._channel.is_closed:
            asyncio.get_running_loop().remove_reader(self._channel)


class HeartbeatProxy:
    """Sends the heartbeats and renews the leases of one worker process, for each instance that it registers as."""

    def __init__(
        self, channel: SupervisorChannel, databases: dict[Config, Database], process: WorkerProcess, timing: Timing
    ) -> None:
        """`databases` are shared by the worker processes, each opened once."""
        self.channel = channel
        self._databases = databases
        self._timing = timing
        self.process = process
        self._database: Database | None = None
        self._config: Config | None = None
        self._heartbeat: _ProxyHeartbeat | None = None
        self._lease = float("inf")
        self._ticked = self._timing.monotonic()
        self.instance: UUID | None = None
        """The instance the process is registered as, by its last message."""
        self._worker_info: dict[str, Any] | None = None

    def receive(self, message: Message) -> None:
        """Handle a message of the process."""
        if message["kind"] == "hello":
            self._ticked = self._timing.monotonic()
            self._lease = message["lease"]
            if message["config"] is not None:
                config = self._config = Config(**message["config"])
                if config not in self._databases:
                    self._databases[config] = connect(config)
                self._database = self._databases[config]
        elif message["kind"] == "tick":
            self._ticked = self._timing.monotonic()
            self._worker_info = message["worker_info"]
            self._switch_to(None if message["instance"] is None else UUID(message["instance"]))
            if self._heartbeat is not None and message["beaten"] is not None:
                self._heartbeat.note_sent(message["beaten"])

    @property
    def loop_silence(self) -> float:
        """How long the event loop of the process has been silent, as a part of its lease; 0 before its first
        message."""
        return (self._timing.monotonic() - self._ticked) / self._lease

    @property
    def is_ready(self) -> bool:
        """Whether the process works, and its heartbeat reaches the database."""
        if self._database is None:
            return self.instance is not None
        return self._heartbeat is not None and self._heartbeat.silence < 2 / 3

    @property
    def age_seconds(self) -> float | None:
        """Seconds since a heartbeat for the process reached the database."""
        return None if self._heartbeat is None else self._heartbeat.age_seconds

    def worker_info(self) -> Mapping[str, Any] | None:
        """What the process last reported of itself."""
        return self._worker_info

    def declared_dead(self) -> None:
        """Nothing: the process learns it from the heartbeat message, and acts itself."""

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._heartbeat is not None:
            self._heartbeat.cease()
            self._heartbeat = None

    def release_tasks(self, running: set[int], *, stopping: bool) -> None:
        """Release the tasks that the process held when it ended, so that other workers run them.  Blocks.

        Tasks that were running, given by their `seq`, count as a failed attempt, unless everything is being stopped.
        """
        instance, config, database = self.instance, self._config, self._database
        if instance is None or database is None or config is None:
            return
        try:
            if stopping:
                count = database.run(lambda: workers.release_held(instance))
            else:
                count = database.run(lambda: workers.recover_from(instance, config.backoff, suspects=running))
            if count:
                how = "released" if stopping else "recovered"
                log.warning("%s %d tasks of worker process instance %s", how, count, instance)
        except TaskLibError as error:
            log.warning("the tasks of instance %s are recovered when its heartbeat is missed: %s", instance, error)

    def _switch_to(self, instance: UUID | None) -> None:
        if instance == self.instance:
            return
        self.stop()
        self.instance = instance
        if instance is not None and self._database is not None and self._config is not None:
            self._heartbeat = _ProxyHeartbeat(self, self._database, self._timing, self._config, instance)
            self._heartbeat.start()


class _ProxyHeartbeat(Heartbeat):
    """Sends heartbeats for an instance of another process, and reports each to that process."""

    def __init__(
        self, proxy: HeartbeatProxy, database: Database, timing: Timing, config: Config, instance: UUID
    ) -> None:
        super().__init__(database, timing, config, instance, proxy)
        self._proxy = proxy
        self._lease = config.lock_timeout_seconds
        self.thread_name = f"tasklib-heartbeat-{instance}"

    def _rest(self) -> Steps:
        yield from super()._rest()
        while not (self._is_over or self._proxy.process.is_working):
            yield from super()._rest()

    def note_sent(self, asked: float) -> None:
        """Note that the process has sent a heartbeat itself at this time: the next is due an interval later."""
        with self._lock:
            self._last = max(self._last, asked)

    def _beat(self) -> Steps:
        yield from super()._beat()
        if self._proxy.loop_silence > RENEW:
            try:
                yield lambda: workers.renew_held(self.instance, self._lease)
            except TaskLibError as error:
                log.warning("cannot renew the leases of a worker process whose event loop is blocked: %s", error)

    def _arrived(self, asked: float, *, known: bool, unbroken_since: float = 0.0) -> None:
        # Whether it was declared dead is decided by the process itself: it may just be signing off.
        super()._arrived(asked, known=True, unbroken_since=unbroken_since)
        self._proxy.channel.notify(
            "beat", instance=str(self.instance), asked=asked, known=known, since=self._held_since
        )
        if not known:
            self._is_over = True
