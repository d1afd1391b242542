"""Heartbeats, sent from a thread that a busy event loop cannot delay."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from tasklib.core.config import Config
from tasklib.core.time.timing import Drive, Steps, Timing
from tasklib.errors import TaskLibError
from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.service import Periodic

FAILING_SECONDS = 1.0
"""The longest pause between tries while heartbeats fail: until one arrives this worker claims nothing."""
SOON_SECONDS = 0.01
"""A heartbeat that is due within this time is sent now."""
MARGIN_SECONDS = 0.2
"""How long before a heartbeat is due the poll must come that carries it."""

log = logging.getLogger("tasklib.worker")


class HeartbeatOwner(Protocol):
    """The worker behind a heartbeat; both methods are called in the heartbeat's thread."""

    def worker_info(self) -> Mapping[str, Any] | None:
        """What the instance reports with this heartbeat; None: nothing new."""
        ...

    def declared_dead(self) -> None:
        """Called when other workers have taken over the instance's tasks."""


class Heartbeat:
    """Sends heartbeats until stopped, and records since when they have arrived without a gap."""

    thread_name = "tasklib-heartbeat"

    def __init__(
        self, database: Database, timing: Timing, config: Config, instance: UUID, owner: HeartbeatOwner
    ) -> None:
        self._database = database
        self._timing = timing
        self._interval = config.heartbeat_interval_seconds
        self._timeout = config.worker_timeout_seconds
        self.instance = instance
        self.owner = owner
        # The registration was the first heartbeat.
        self._last = self._held_since = timing.monotonic()
        self._failing = False
        self._is_over = False
        self._lock = threading.Lock()
        self._drive: Drive | None = None

    def start(self) -> None:
        """Start sending."""
        self._drive = self._timing.drive(self.thread_name, self._beats(), self._database)

    def cease(self) -> None:
        """Send no more."""
        self._is_over = True
        if self._drive is not None:
            self._drive.end()

    async def stop(self) -> None:
        """Send no more; returns when a heartbeat under way is over."""
        self.cease()
        if self._drive is not None:
            await self._drive.ended()

    @property
    def silence(self) -> float:
        """Time since the last heartbeat arrived, as a part of the worker timeout; at 1 other workers take over."""
        return (self._timing.monotonic() - self._last) / self._timeout

    @property
    def age_seconds(self) -> float:
        """Seconds since the last heartbeat that arrived."""
        return self._timing.monotonic() - self._last

    @property
    def due_in(self) -> float:
        """Seconds until the next heartbeat is due."""
        return self._interval - self.age_seconds

    def came_with_poll(self, asked: float, *, known: bool) -> None:
        """Note that a heartbeat sent at this time with the idle worker's poll was answered."""
        self._arrived(asked, known=known)

    @property
    def is_steady(self) -> bool:
        """True once heartbeats have arrived for one full timeout: only then may this instance declare others dead.

        After an outage all workers look silent; those alive have sent a heartbeat again before any of them may judge.
        """
        return self.silence < 1 and self._timing.monotonic() - self._held_since >= self._timeout

    def _beats(self) -> Steps:
        while True:
            yield from self._rest()
            if self._is_over:
                return
            yield from self._beat()

    def _rest(self) -> Steps:
        """Wait until the next heartbeat is due or none is wanted; one that was sent another way postpones it."""
        if self._failing:
            yield min(self._interval, FAILING_SECONDS)
            return
        yield self._interval
        while not (self._is_over or self._failing) and self.due_in > SOON_SECONDS:
            yield self.due_in

    def _beat(self) -> Steps:
        # The time before the request counts: the database saw it no earlier.
        asked = self._timing.monotonic()
        try:
            known = yield lambda: workers.beat(self.instance, self.owner.worker_info())
        except TaskLibError as error:
            if not self._failing and not self._is_over:
                log.warning("cannot send heartbeats, trying until the database is back: %s", error)
            self._failing = True
        except Exception:
            # Any error at all: if heartbeats ended here, others would declare this worker dead.
            log.exception("cannot send heartbeats")
            self._failing = True
        else:
            self._arrived(asked, known=known)

    def _arrived(self, asked: float, *, known: bool, unbroken_since: float = 0.0) -> None:
        """Note that a heartbeat sent at this time was answered."""
        with self._lock:
            if self._failing or asked - self._last > self._timeout:
                unbroken_since = asked
            self._held_since = max(self._held_since, unbroken_since)
            self._last = max(self._last, asked)
            self._failing = False
            if known or self._is_over:
                return
            self._is_over = True
        log.error("this worker was declared dead; its tasks run elsewhere")
        self.owner.declared_dead()


class HeartbeatWithPoll(Periodic):
    """Sends the heartbeat of an idle worker with a poll, shortly before the thread would; without a poll the thread
    does."""

    def __init__(self, queue: TaskQueue, heartbeat: Heartbeat, poll_batch: PollBatch) -> None:
        super().__init__(queue, queue.config.poll_interval_seconds)
        self._heartbeat = heartbeat
        self._poll_batch = poll_batch

    def pause(self) -> float:
        """Seconds until the last poll before the next heartbeat is due."""
        return max(SOON_SECONDS, self._heartbeat.due_in - self.interval - MARGIN_SECONDS)

    async def step(self) -> None:
        """Send a heartbeat with the next poll, if there is one in time."""
        heartbeat, asked = self._heartbeat, 0.0

        def beat() -> Operation[bool]:
            nonlocal asked
            asked = self.timing.monotonic()
            return workers.beat(heartbeat.instance, heartbeat.owner.worker_info())

        if self._poll_batch.has_poll(heartbeat.due_in - MARGIN_SECONDS):
            known = await self._poll_batch.run(beat, within=self.interval)
            heartbeat.came_with_poll(asked, known=known)
        else:
            await self.timing.sleep(self.interval)
