"""Objectives: how many tasks should start, or end, within a time, and how much may still go wrong.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast, get_args

from tasklib.core.insights.histogram import share_within
from tasklib.core.numbers import is_number
from tasklib.errors import ConfigurationError

Kind = Literal["wait", "run"]
LONGEST_SECONDS: Final = 86_400.0
AT_RISK: Final = 25.0
"""Percent of the error budget: with less left an objective is at risk."""


@dataclass(frozen=True, slots=True)
class Objective:
    """`target` percent of the attempts of a name take at most so many seconds."""

    name: str | None
    """None: attempts of every name together."""
    kind: Kind
    """`wait`: from due to started; `run`: from started to ended."""
    within_seconds: float
    target: float
    set_at: datetime | None = None
    set_by: str | None = None

    def __str__(self) -> str:
        verb = "start" if self.kind == "wait" else "end"
        return f"{self.target:g} % {verb} within {self.within_seconds:g} s"


def check_objective(
    name: str | None, kind: str, within_seconds: object, target: object, by: str | None = None
) -> Objective:
    """The objective, if it is one; every front end asks here."""
    if kind not in get_args(Kind):
        raise ConfigurationError(f"an objective is about the {' or the '.join(get_args(Kind))} of tasks, got {kind!r}")
    if not _is_between(within_seconds, 0, LONGEST_SECONDS) or within_seconds == 0:
        raise ConfigurationError(f"an objective is within seconds above 0, a day at most, got {within_seconds!r}")
    if not _is_between(target, 0, 100) or target in (0, 100):
        raise ConfigurationError(
            f"the target of an objective is a percentage between 0 and 100, like 99.5, got {target!r}; "
            "100 leaves nothing that may go wrong"
        )
    return Objective(
        name, cast("Kind", kind), float(cast("float", within_seconds)), float(cast("float", target)), set_by=by
    )


def _is_between(value: object, least: float, most: float) -> bool:
    return is_number(value) and least <= value <= most


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """How an objective stands over a time."""

    objective: Objective
    count: int
    within: float | None
    """The percentage within the objective; None if there were no attempts."""
    budget: float | None
    """Percent of the error budget that are left: 100 if none missed it, below 0 if overspent."""

    @property
    def at_risk(self) -> bool:
        """Whether little of the budget is left, or none."""
        return self.budget is not None and self.budget < AT_RISK


def objective_status(objective: Objective, durations: Mapping[int, int]) -> ObjectiveStatus:
    """How attempts with these durations stand against an objective."""
    share = share_within(durations, objective.within_seconds)
    within = None if share is None else round(share * 100, 3)
    budget = None if within is None else round(100 - (100 - within) / (100 - objective.target) * 100, 1)
    return ObjectiveStatus(objective, sum(durations.values()), within, budget)
