"""What one worker instance holds: tasks claimed and waiting, and tasks running."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable

from tasklib.core.lifecycle import Ending
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Execution

Record = Callable[[ClaimedTask, Ending], None]
"""Takes the end of an attempt, to write it down soon."""


class HeldTasks:
    """The tasks in hand; the claimer fills it, the services look after what is in it."""

    def __init__(
        self,
        concurrency: int,
        start: Callable[[ClaimedTask], Execution],
        *,
        stepped: Callable[[ClaimedTask], Definition | None],
        go: Callable[[], None],
        runs_apart: Callable[[ClaimedTask], bool],
        may_run_ahead: Callable[[ClaimedTask], bool],
    ) -> None:
        self._concurrency = concurrency
        self._start = start
        self._stepped = stepped
        self._go = go
        self._runs_apart = runs_apart
        self._may_run_ahead = may_run_ahead
        self.buffer: deque[ClaimedTask] = deque()
        self.running: dict[str, Execution] = {}
        self._risky: set[str] = set()

    def start_waiting(self) -> None:
        """Start buffered tasks in the free slots."""
        while self.buffer:
            task = self.buffer[0]
            if len(self.running) >= self._concurrency and not self._may_run_ahead(task):
                return
            # A suspect may take the whole process down: where it cannot have one of its own, nothing runs beside it.
            risky = task.lost_count > 0 and not self._runs_apart(task)
            if self.running and (risky or self._risky):
                return
            if not risky and self._stepped(task) is not None:
                self._go()  # A lane takes it, and whatever else it can begin.
                return
            self.buffer.popleft()
            if risky:
                self._risky.add(task.id)
            self.running[task.id] = self._start(task)

    def take_stepped(self) -> tuple[ClaimedTask, Definition] | None:
        """The next task, if it is a coroutine that may begin in a lane now."""
        if not self.buffer or self._risky or len(self.running) >= self._concurrency:
            return None
        task = self.buffer[0]
        definition = None if task.lost_count else self._stepped(task)
        if definition is None:
            return None
        self.buffer.popleft()
        return task, definition

    def finished(self, task: ClaimedTask) -> None:
        """The slot of a task is free again."""
        self.running.pop(task.id, None)
        self._risky.discard(task.id)

    def held(self) -> list[ClaimedTask]:
        """Everything that waits or runs here."""
        return [*self.buffer, *(execution.task for execution in self.running.values())]

    def give_back(self, record: Record, keep: int = 0) -> None:
        """Let go of what has not started, but for the first few; no attempt is spent."""
        while len(self.buffer) > keep:
            task = self.buffer.pop()
            record(task, Ending.release(task.id, task.version))

    def give_back_paused(self, record: Record, names: Collection[str | None]) -> None:
        """Let go of what has not started of paused names, or of everything if None is among them."""
        paused = [task for task in self.buffer if None in names or task.name in names]
        self.drop(task.id for task in paused)
        for task in paused:
            record(task, Ending.release(task.id, task.version))

    def count_by_name(self) -> Counter[str]:
        """How many tasks of each name are in hand."""
        return Counter(task.name for task in self.held())

    def drop(self, task_ids: Iterable[str]) -> None:
        """Let go of tasks that are no longer ours; running ones are ended, and the database refuses their results."""
        gone = set(task_ids)
        if not gone:
            return
        self.buffer = deque(task for task in self.buffer if task.id not in gone)
        for task_id in gone:
            if task_id in self.running:
                self.running[task_id].fence()
