"""How long finished tasks and facts are kept: `completed=7d, report:completed=1y, facts=90d`.  Pure."""

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
FACTS: Final = "facts"
FACTS_KEPT_SECONDS: Final = 30 * 86_400.0
"""How long facts are kept unless a rule says otherwise."""

_LONGEST_SECONDS: Final = 1000 * UNITS["y"]
"""Longer is for ever: no fact is so old, and databases know no such moments."""
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
    return [
        Rule(found["name"], TaskState(found["state"]), _seconds(found))
        for found in _rules(text)
        if found["state"] != FACTS
    ]


def parse_fact_retention(text: str) -> float | None:
    """For how many seconds a setting keeps facts; None is for ever."""
    kept = [_seconds(found) for found in _rules(text) if found["state"] == FACTS]
    seconds = kept[0] if kept else FACTS_KEPT_SECONDS
    return None if seconds is None or seconds > _LONGEST_SECONDS else seconds


def is_retention(value: object) -> bool:
    """Whether it can be parsed."""
    if not isinstance(value, str):
        return False
    try:
        parse_retention(value)
    except ConfigurationError:
        return False
    return True


def _rules(text: str) -> Sequence[re.Match[str]]:
    return [_rule(part.strip()) for part in text.split(",") if part.strip()]


def _rule(text: str) -> re.Match[str]:
    found = _RULE.fullmatch(text)
    if found is None or found["state"] not in (*ENDED, FACTS) or (found["state"] == FACTS and found["name"]):
        raise ConfigurationError(
            f"{text!r} is not a retention rule; write completed=7d, failed=forever, report:completed=12h or facts=90d, "
            f"with a state of {', '.join(ENDED)} and a unit of {' '.join(UNITS)}"
        )
    return found


def _seconds(rule: re.Match[str]) -> float | None:
    return None if rule["number"] is None else float(rule["number"]) * UNITS[rule["unit"]]
