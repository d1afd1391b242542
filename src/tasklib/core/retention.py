"""How long finished tasks are kept: `completed=7d, failed=30d, report:completed=1y`.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tasklib.core.task import TaskState
from tasklib.errors import ConfigurationError

ENDED: Final = (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.BURIED)
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
FOREVER: Final = "forever"

_RULE = re.compile(r"(?:(?P<name>.+):)?(?P<state>\w+)=(?:(?P<number>\d+(?:\.\d+)?)(?P<unit>[smhdwy])|forever)")


@dataclass(frozen=True, slots=True)
class Rule:
    """Finished tasks of a state, of one name or of all others, are removed this long after their end."""

    name: str | None
    state: TaskState
    seconds: float | None
    """None keeps them for ever."""


def parse_retention(text: str) -> Sequence[Rule]:
    """The rules of a setting; a rule for a name comes before the one for every name, and `forever` keeps."""
    return [_rule(part.strip()) for part in text.split(",") if part.strip()]


def is_retention(value: object) -> bool:
    """Whether it can be parsed."""
    if not isinstance(value, str):
        return False
    try:
        parse_retention(value)
    except ConfigurationError:
        return False
    return True


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None or found["state"] not in ENDED:
        raise ConfigurationError(
            f"{text!r} is not a retention rule; write completed=7d, failed=forever or report:completed=12h, "
            f"with a state of {', '.join(ENDED)} and a unit of {' '.join(UNITS)}"
        )
    seconds = None if found["number"] is None else float(found["number"]) * UNITS[found["unit"]]
    return Rule(found["name"], TaskState(found["state"]), seconds)
