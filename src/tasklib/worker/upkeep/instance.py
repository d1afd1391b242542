"""A worker as others know it: an id with a heartbeat, and the services that look after what it holds under that id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from tasklib.core.clock import Clock
from tasklib.storage.database import Database
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.runner import Runner
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tasklib.worker.upkeep.leases import LeaseRenewal
from tasklib.worker.upkeep.recovery import Recovery
from tasklib.worker.upkeep.self_fence import SelfFence
from tasklib.worker.upkeep.service import Service
from tasklib.worker.upkeep.watch import RequestWatch

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue


class Instance:
    """One registration of a worker; one that is declared dead ends, and the worker goes on as another."""

    def __init__(self, queue: TaskQueue, runner: Runner, control: WorkerControl, heartbeat: Heartbeat) -> None:
        self.database: Database = queue.database
        self.clock: Clock = queue.clock
        self.control = control
        self.id: UUID = heartbeat.instance
        self.worker_id = runner.settings.worker_id
        config = queue.config
        self._heartbeat = heartbeat
        self._fence = SelfFence(heartbeat, runner, timeout_seconds=config.worker_timeout_seconds)
        self.recovery = Recovery(self.database, config, self.clock, heartbeat)
        self._services: list[Service] = [
            LeaseRenewal(self.database, self.clock, runner.held, lease_seconds=config.lock_timeout_seconds),
            RequestWatch(self.database, self.clock, runner),
            self.recovery,
            self._fence,
        ]

    @property
    def may_claim(self) -> bool:
        """Whether others will count on this instance for long enough to claim more."""
        return self._fence.may_claim

    @property
    def fleet(self) -> int:
        """How many workers are alive, as far as this one has looked."""
        return self.recovery.fleet

    def start(self, *chores: Service) -> None:
        """Beat, look after what is held, and do these chores beside."""
        self._services += chores
        self._heartbeat.start()
        for service in self._services:
            service.start()

    async def stop(self) -> None:
        """End the services, and the heartbeat last."""
        for service in self._services:
            await service.stop()
        await asyncio.to_thread(self._heartbeat.stop)
