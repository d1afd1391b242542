"""The tasks that one worker holds: those waiting for a slot, and those running."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable

from tasklib.core.lifecycle import Ending
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.attempt import Attempt, Executor
from tasklib.worker.execution.running_attempt import StopReason
from tasklib.worker.recording.finisher import Finisher


class HeldTasks:
    """The claimer adds tasks, executors take them, and the upkeep services renew, cancel or return them."""

    def __init__(self, concurrency: int, control: WorkerControl) -> None:
        self._control = control
        self._concurrency = concurrency
        self.waiting: deque[Attempt] = deque()
        self.running: dict[int, Attempt] = {}
        """By the version of the claim: an earlier attempt at the same task may still be ending here."""
        self._alone: Attempt | None = None

    def resize(self, concurrency: int) -> None:
        """Let this many run at once from now on."""
        self._concurrency = concurrency

    def next_for(self, executor: Executor) -> Attempt | None:
        """The next attempt, if it is for this executor and may begin now."""
        if not self.waiting:
            return None
        attempt = self.waiting[0]
        if attempt.executor is not executor or self._alone is not None:
            return None
        if len(self.running) >= self._concurrency and not executor.has_room(attempt):
            return None
        # A suspect may take the whole process down: nothing runs beside it.
        return None if self.running and self._must_be_alone(attempt, executor) else attempt

    def take(self, executor: Executor) -> Attempt | None:
        """Take the next attempt, if it is for this executor and may begin now."""
        attempt = self.next_for(executor)
        if attempt is not None:
            if self._must_be_alone(attempt, executor):
                self._alone = attempt
            self.waiting.popleft()
        return attempt

    @staticmethod
    def _must_be_alone(attempt: Attempt, executor: Executor) -> bool:
        return attempt.task.lost_count > 0 and executor.shares_process

    def finished(self, attempt: Attempt) -> None:
        """The slot of an attempt is free again."""
        self.running.pop(attempt.task.version, None)
        if self._alone is attempt:
            self._alone = None
        self._control.ended.set()

    async def one_ended(self, timeout: float | None = None) -> None:
        """Return when an attempt has ended since the last call, when the seconds are over, or when the drain is cut
        short."""
        await self._control.timing.wait(self._control.ended, timeout)
        self._control.ended.clear()

    def tasks(self) -> list[ClaimedTask]:
        """Everything that waits or runs here."""
        return [attempt.task for attempt in (*self.waiting, *self.running.values())]

    def count_by_name(self) -> Counter[str]:
        """How many tasks of each name are held."""
        return Counter(task.name for task in self.tasks())

    def release_waiting(self, finisher: Finisher, keep: int = 0) -> None:
        """Release what has not started, except the first `keep`; no attempt is spent."""
        while len(self.waiting) > keep:
            task = self.waiting.pop().task
            finisher.add(task, Ending.release(task.id, task.version))

    def release_paused(self, finisher: Finisher, names: Collection[str | None]) -> None:
        """Release what has not started of paused names, or everything if None is among them."""
        paused = [attempt.task for attempt in self.waiting if None in names or attempt.task.name in names]
        self.drop(task.version for task in paused)
        for task in paused:
            finisher.add(task, Ending.release(task.id, task.version))

    def drop(self, versions: Iterable[int]) -> None:
        """Drop the tasks of claims that were lost to other workers; running ones are stopped, and the database refuses
        their results."""
        lost = set(versions)
        if not lost:
            return
        self.waiting = deque(each for each in self.waiting if each.task.version not in lost)
        for attempt in [each for version, each in self.running.items() if version in lost]:
            attempt.stop(StopReason.FENCED)
