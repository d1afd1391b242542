"""What undoes a step: a task that is bound to it, and submitted if the workflow ends without success."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tasklib.core.calls.steps import StepOptions
from tasklib.errors import ConfigurationError
from tasklib.storage.operations.workflows.groups import rows_of
from tasklib.submission.function import BoundTask


def undo_of(options: StepOptions, priority: int) -> dict[str, Any] | None:
    """The undo task as stored with its step, with an id for the group it will wait for.

    Its own id follows from the group's of the last step when it is submitted.
    """
    if options.undo is None:
        return None
    if not isinstance(options.undo, BoundTask):
        raise ConfigurationError(f"undo= takes task.bind(...), got {options.undo!r}")
    bound: BoundTask[Any] = options.undo
    new = bound.new
    if bound.results:
        raise ConfigurationError("node.result is for tasks of a flow, and an undo is none")
    refused = {
        "a unique key": new.unique_key is not None,
        "a time to run at": new.run_at is not None,
        "an expiry": new.expires_at is not None or new.expires_in is not None,
    }
    if found := [what for what, given in refused.items() if given]:
        raise ConfigurationError(
            f"the undo {new.name!r} has {' and '.join(found)}, and runs whenever the workflow fails; leave that out"
        )
    (row,) = rows_of([new])
    del row["id"]
    return row | {"priority": new.priority or priority, "after": str(uuid4())}


def refuse_undo(options: StepOptions, what: str) -> None:
    """Refuse `undo=` for a wait, which has no effects to undo."""
    if options.undo is not None:
        raise ConfigurationError(f"undo= is for steps and children; {what} has nothing to undo")
