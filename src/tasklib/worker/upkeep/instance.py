"""One registration of a worker: an id with a heartbeat, and the services for the tasks held under that id."""

from __future__ import annotations

from uuid import UUID

from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.runner import Runner
from tasklib.worker.upkeep.heartbeat import Heartbeat, HeartbeatWithPoll
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.recovery import Recovery
from tasklib.worker.upkeep.self_fence import SelfFence
from tasklib.worker.upkeep.service import Periodic
from tasklib.worker.upkeep.watch import LeaseRenewal, RequestWatch


class Instance:
    """One registration; when it is declared dead it ends, and the worker goes on with another."""

    def __init__(self, queue: TaskQueue, runner: Runner, control: WorkerControl, heartbeat: Heartbeat) -> None:
        self.database: Database = queue.database
        self.control = control
        self.id: UUID = heartbeat.instance
        self.worker_id = runner.settings.worker_id
        self._heartbeat = heartbeat
        self.fence = SelfFence(queue, runner, heartbeat)
        self.poll_batch = PollBatch(queue.database, queue.timing)
        self.recovery = Recovery(queue, heartbeat, self.poll_batch)
        self._services: list[Periodic] = [
            LeaseRenewal(queue, runner),
            RequestWatch(queue, control, runner),
            self.recovery,
            self.fence,
            HeartbeatWithPoll(queue, heartbeat, self.poll_batch),
        ]

    def start(self, *others: Periodic) -> None:
        """Start the heartbeat, the instance's own services, and these."""
        self._services += others
        self._heartbeat.start()
        for service in self._services:
            service.start()

    async def stop(self) -> None:
        """End the services, and the heartbeat last."""
        for service in self._services:
            await service.stop()
        await self._heartbeat.stop()
