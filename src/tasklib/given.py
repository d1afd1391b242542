"""What was given where something else is needed, in words and with the remedy."""

from __future__ import annotations

from typing import Any
from uuid import UUID


def instead_of_id(given: Any) -> str:
    """What was given where an id is needed; a coroutine among it is closed."""
    kind = type(given).__name__
    if hasattr(given, "__await__"):
        if hasattr(given, "close"):
            given.close()  # this error says it already; Python need not warn that it was never awaited
        call = getattr(given, "__name__", "submit_task")
        return f"got a {kind}: `await` is missing, as in task_id = await {call}(...)"
    if given is None:
        return "got None: does the submitting function return the id?"
    if hasattr(given, "id") and hasattr(given, "state"):
        return f"got a {kind}: write task.id"
    return f"got {given!r:.80}"


def instead_of_task(given: Any) -> str:
    """What was given where a task is needed."""
    if given is None:
        return "got None: no task has that id (any more); write `if task is not None` first"
    if isinstance(given, UUID | str):
        return "got an id: write queue.get(id)"
    return instead_of_id(given)
