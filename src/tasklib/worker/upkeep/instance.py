"""One registration of a worker: an id with a heartbeat, and the services for what it holds under that id."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

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
    """One registration; when it is declared dead it ends, and the worker goes on with another."""

    def __init__(self, queue: TaskQueue, runner: Runner, control: WorkerControl, heartbeat: Heartbeat) -> None:
        self.database: Database = queue.database
        self.control = control
        self.id: UUID = heartbeat.instance
        self.worker_id = runner.settings.worker_id
        config, timing = queue.config, queue.timing
        self._heartbeat = heartbeat
        self._fence = SelfFence(heartbeat, runner, timing, timeout_seconds=config.worker_timeout_seconds)
        self.recovery = Recovery(self.database, timing, config, heartbeat)
        self._services: list[Service] = [
            LeaseRenewal(self.database, timing, runner.held, lease_seconds=config.lock_timeout_seconds),
            RequestWatch(self.database, control, runner),
            self.recovery,
            self._fence,
        ]

    @property
    def may_claim(self) -> bool:
        """Whether the last heartbeat is recent enough to claim more."""
        return self._fence.may_claim

    @property
    def fleet(self) -> int:
        """How many workers are alive, as far as this one has looked."""
        return self.recovery.fleet

    def start(self, *others: Service) -> None:
        """Start the heartbeat and the services, and these others too."""
        self._services += others
        self._heartbeat.start()
        for service in self._services:
            service.start()

    async def stop(self) -> None:
        """End the services, and the heartbeat last."""
        for service in self._services:
            await service.stop()
        await self._heartbeat.stop()
