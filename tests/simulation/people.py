"""People who pause, cancel, retry, delete and change limits while everything else goes on."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tasklib import InvalidTransition, StorageError, TaskNotFound, TaskQueue, UniqueConflict
from tests.simulation.scenario import Act

NAMES = ("plain", "limited", "keyed", "rated", "effect", "blocking")
KEYS = ((None, None), ("a", None), (None, "keyed"), ("a", "keyed"))
"""Keys and names of tasks whose limits are set; None is for every other."""
KEY_LIMITS = (0, 1, 2, None)
"""0 is unlimited, None what there was before."""

REFUSALS = ("InvalidTransition", "TaskNotFound", "UniqueConflict")
"""Answers that say that nothing was changed."""


async def act(queue: TaskQueue, what: Act, known: Sequence[str], removed: Sequence[str]) -> str:
    """Do it once, as a person would; returns what came of it."""
    name = NAMES[what.which % len(NAMES)]
    task_id = known[what.which % len(known)] if known else None
    try:
        match what.what:
            case "pause":
                await queue.apause(name)
            case "resume":
                await queue.aresume(name)
            case "pause everything":
                await queue.apause()
            case "resume everything":
                await queue.aresume()
            case "limit":
                await queue.aset_concurrency_limit(what.amount, name)
            case "limit everything":
                await queue.aset_concurrency_limit(what.amount)
            case "limit key":
                await queue.aset_key_limit(KEY_LIMITS[what.amount], *KEYS[what.which % len(KEYS)])
            case "rate":
                await queue.aset_rate_limit(what.amount, name)
            case "rate of everything":
                await queue.aset_rate_limit(what.amount)
            case "cleanup":
                return f"{await queue.acleanup(older_than=5.0)} removed"
            case "use an id again":
                if removed:
                    arguments = {"behaviour": "ok", "seconds": 2.0}
                    await queue.aenqueue("plain", arguments, id=UUID(removed[what.which % len(removed)]))
            case _ if task_id is None:
                return "nothing to act on"
            case "cancel":
                await queue.acancel(task_id)
            case "retry":
                await queue.aretry(task_id)
            case "delete":
                await queue.adelete(task_id)
            case "prioritize":
                await queue.aset_priority(task_id, what.amount)
            case _:
                raise AssertionError(what.what)
    except (InvalidTransition, TaskNotFound, UniqueConflict, StorageError) as error:
        return type(error).__name__
    return "done"
