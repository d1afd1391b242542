"""Watching what runs: requests to cancel it, tasks that were taken away or paused, and progress to be written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from tasklib.core.task import LogLine
from tasklib.storage.database import Database
from tasklib.storage.operations import attempts
from tasklib.storage.operations.controls import list_pauses
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.intake.held_tasks import HeldTasks, Record
from tasklib.worker.upkeep.finisher import Lines
from tasklib.worker.upkeep.service import Periodic

WATCH_SECONDS = 0.5
"""How soon a request to cancel or a pause reaches what is in hand, and how often progress is written, at most."""

MAX_LINES = 200
"""Lines of one task kept between two steps, and on its row."""


class RequestWatch(Periodic):
    """Sees what shall be cancelled, was taken away or is paused meanwhile, and keeps the progress of tasks visible."""

    interval = WATCH_SECONDS

    def __init__(
        self, database: Database, hand: HeldTasks, record: Record, *, now: Callable[[], datetime | None]
    ) -> None:
        super().__init__()
        self._database = database
        self._hand = hand
        self._record = record
        self._now = now
        self._doubted: set[str] = set()
        self._progress: dict[str, tuple[str, int, float, str | None]] = {}
        self._lines: dict[tuple[str, int], list[LogLine]] = {}

    def note_progress(self, task: ClaimedTask, fraction: float, message: str | None) -> None:
        """Keep the latest report of a task until the next step writes it; may be called from any thread."""
        self._progress[task.id] = (task.id, task.version, fraction, message)

    def note_line(self, task: ClaimedTask, line: LogLine) -> None:
        """Keep a line a task logged until the next step, or its end, writes it; may be called from any thread."""
        lines = self._lines.setdefault((task.id, task.version), [])
        lines.append(line)
        del lines[:-MAX_LINES]

    @property
    def has_notes(self) -> bool:
        """Whether any task has reported or logged what is not written yet."""
        return bool(self._progress or self._lines)

    def take_lines(self, task: ClaimedTask) -> Lines:
        """What a task has logged and nobody has written yet."""
        self._progress.pop(task.id, None)
        lines = self._lines.pop((task.id, task.version), None) if self._lines else None
        return {(task.id, task.version): lines} if lines else {}

    async def step(self) -> None:
        """Write progress and lines, and look for requests, if anything is in hand."""
        reports, self._progress = self._progress, {}
        lines, self._lines = self._lines, {}
        if lines:
            await self._database.arun(lambda: attempts.append_log(lines, self._now()))
        if reports:
            await self._database.arun(lambda: attempts.report_progress(list(reports.values()), self._now()))
        held = [(e.task.id, e.task.version) for e in self._hand.running.values() if not e.cancelled]
        if held:
            lost, cancelled = await self._database.arun(lambda: attempts.find_cancel_requests(held))
            # A transactional task runs no more the moment it commits, a little before its thread says so: what is let
            # go was gone at the last look already.
            self._hand.drop(lost & self._doubted)
            self._doubted = lost
            for task_id in cancelled & self._hand.running.keys():
                self._hand.running[task_id].cancel()
        if self._hand.buffer:
            paused = {pause.name for pause in await self._database.arun(list_pauses)}
            self._hand.give_back_paused(self._record, paused)
