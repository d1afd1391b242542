"""Progress and log lines of running tasks, held until they are written."""

from __future__ import annotations

from tasklib.core.task import LogLine
from tasklib.storage.rows import ClaimedTask

MAX_LINES = 200
"""Log lines kept of one task, between two writes and in its row."""

Lines = dict[tuple[str, int], list[LogLine]]
"""What attempts, by id and version, have logged."""
Reports = list[tuple[str, int, float, str | None]]
"""How far attempts, by id and version, have come."""


class Notes:
    """Collects what tasks report, from any thread."""

    def __init__(self) -> None:
        self._progress: dict[str, tuple[str, int, float, str | None]] = {}
        self._lines: Lines = {}

    def __bool__(self) -> bool:
        return bool(self._progress or self._lines)

    def note_progress(self, task: ClaimedTask, fraction: float, message: str | None) -> None:
        """Keep the latest report of a task."""
        self._progress[task.id] = (task.id, task.version, fraction, message)

    def note_line(self, task: ClaimedTask, line: LogLine) -> None:
        """Keep a line that a task has logged."""
        lines = self._lines.setdefault((task.id, task.version), [])
        lines.append(line)
        del lines[:-MAX_LINES]

    def take(self) -> tuple[Reports, Lines]:
        """Everything since the last time."""
        progress, self._progress = self._progress, {}
        lines, self._lines = self._lines, {}
        return list(progress.values()), lines

    def take_lines(self, task: ClaimedTask) -> Lines:
        """What a task that has ended logged last; its progress is recorded with its end."""
        self._progress.pop(task.id, None)
        lines = self._lines.pop((task.id, task.version), None) if self._lines else None
        return {(task.id, task.version): lines} if lines else {}
