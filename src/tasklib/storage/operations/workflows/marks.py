"""The bits of the column `tasks.marks`, which is NULL for plain tasks.

SQL has them as numbers: 22 are those that a task loses when it begins from scratch, and `complete_members` flips 64 so
that the trigger does not count an end which the statement has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tasklib.storage.rows import ClaimedTask

MEMBER: Final = 1
"""The task is a child that a workflow waits for."""
HAS_UNDOS: Final = 2
"""The task has bound undos, which are submitted if it ends without success."""
HAS_STEPS: Final = 4
"""The task has recorded something."""
OWNER: Final = 16
"""The task has children."""
BEFORE: Final = 32
"""The task is before others in a flow."""


def note_recorded(task: ClaimedTask, step: Mapping[str, Any], also: int = 0) -> None:
    """Change a claimed task in memory as recording the step has changed its row; progress resets the retries.

    The worker does this, and so does the engine: in a child process it has a copy of the task.
    """
    task.marks |= HAS_STEPS | also | (HAS_UNDOS if step.get("undo") is not None else 0)
    if step["state"] == "done":
        task.retry_count = 0
