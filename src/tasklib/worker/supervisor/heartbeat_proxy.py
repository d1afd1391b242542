"""Heartbeats on behalf of worker processes, sent by the supervisor, where no user code can delay them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote
from uuid import UUID

from tasklib.core.config import Config
from tasklib.core.timing import Steps, Timing
from tasklib.errors import TaskLibError
from tasklib.storage import connect
from tasklib.storage.database import Database
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation
from tasklib.worker.supervisor.channel import Channel, Message
from tasklib.worker.upkeep.heartbeat import Heartbeat

RENEW = 1 / 3
"""The part of a lease that an event loop may be silent before its leases are renewed for it, as it does itself."""

log = logging.getLogger("tasklib.worker")


def introduce(config: Config, database: Database) -> dict[str, Any] | None:
    """What a supervisor must know to reach the database of a worker process; None if it cannot."""
    if config.is_sqlite:
        path = getattr(database, "path", None)
        if path is None:
            return None
        # The file as it was found: the program may have changed its folder since.
        config = config.with_(database_url=f"sqlite:///{quote(str(path))}")
    return dataclasses.asdict(config.with_(auto_migrate=False))


class ProcessState(Protocol):
    """Whether a worker process can do anything at all."""

    @property
    def is_working(self) -> bool:
        """False once it has ended, and while SIGSTOP pauses it: then others shall take over."""
        ...


class Databases:
    """The databases that worker processes work on, each opened once."""

    def __init__(self) -> None:
        self._opened: dict[Config, Database] = {}

    def of(self, introduction: dict[str, Any]) -> tuple[Config, Database]:
        """The database a worker process has introduced."""
        config = Config(**introduction)
        if config not in self._opened:
            self._opened[config] = connect(config)
        return config, self._opened[config]

    def close(self) -> None:
        """Close every connection."""
        for database in self._opened.values():
            database.close()


class HeartbeatProxy:
    """Keeps up the heartbeat and the leases of one worker process, whichever instance it is registered as."""

    def __init__(self, channel: Channel, databases: Databases, process: ProcessState, timing: Timing) -> None:
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
        self._running: set[int] = set()

    def receive(self, message: Message) -> None:
        """Take in a message of the process."""
        match message["kind"]:
            case "hello":
                self._ticked = self._timing.monotonic()
                self._lease = message["lease"]
                if message["config"] is not None:
                    self._config, self._database = self._databases.of(message["config"])
            case "tick":
                self._ticked = self._timing.monotonic()
                self._worker_info = message["worker_info"]
                self._switch_to(None if message["instance"] is None else UUID(message["instance"]))
            case _:
                pass

    @property
    def silence(self) -> float:
        """For which part of its lease the event loop of the process has been silent; 0 before its first message."""
        return (self._timing.monotonic() - self._ticked) / self._lease

    @property
    def is_ready(self) -> bool:
        """Whether the process works, and its heartbeat reaches the database."""
        if self._database is None:
            return self.instance is not None
        return self._heartbeat is not None and self._heartbeat.silence < 2 / 3

    def worker_info(self) -> Mapping[str, Any] | None:
        """What the process last reported of itself."""
        return self._worker_info

    def declared_dead(self) -> None:
        """Nothing to do: the process learns it with the beat, and acts itself."""

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._heartbeat is not None:
            self._heartbeat.cease()
            self._heartbeat = None

    def has_died(self, running: set[int]) -> None:
        """The process has ended while it ran the tasks with these numbers."""
        self.stop()
        self._running = running

    def recover(self) -> None:
        """Let what it ran be run again, as a failed attempt, and what it only held at no cost.  Blocks."""
        self._take_back(
            lambda instance, config: workers.recover_from(instance, config.backoff, suspects=self._running),
            "took back %d tasks of worker process instance %s",
        )

    def release(self) -> None:
        """The process was ended because everything stops: give back what it ran, at no cost.  Blocks."""
        self._take_back(
            lambda instance, _: workers.release_held(instance), "gave back %d tasks of worker process instance %s"
        )

    def _take_back(self, operation: Callable[[UUID, Config], Operation[int]], text: str) -> None:
        instance, config = self.instance, self._config
        if instance is None or self._database is None or config is None:
            return
        try:
            if count := self._database.run(lambda: operation(instance, config)):
                log.warning(text, count, self.instance)
        except TaskLibError as error:
            log.warning("the tasks of instance %s are recovered when its heartbeat is missed: %s", self.instance, error)

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

    def _beat(self) -> Steps:
        yield from super()._beat()
        if self._proxy.silence > RENEW:
            try:
                yield lambda: workers.renew_held(self.instance, self._lease)
            except TaskLibError as error:
                log.warning("cannot renew the leases of a worker process whose event loop is blocked: %s", error)

    def _arrived(self, asked: float, *, known: bool, unbroken_since: float = 0.0) -> None:
        # Whether it was declared dead is for the process to say: it may just be signing off.
        super()._arrived(asked, known=True, unbroken_since=unbroken_since)
        self._proxy.channel.send("beat", instance=str(self.instance), asked=asked, known=known, since=self._held_since)
        if not known:
            self._is_over = True
