"""How much is shown at once of what callers can make without end: names of tasks, workers, schedules, tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

from pydantic import Field

from tasklib.http.schemas.fields import INT32, Input

MOST_NAMES: Final = 500
"""Types that are told apart in numbers: the busiest.  A producer may make up as many as it submits tasks."""
MOST_ROWS: Final = 1000
UNFINISHED: Final = ("pending", "running", "retrying")

T = TypeVar("T")


class Part(Input):
    """Which part of a list."""

    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = MOST_ROWS
    offset: Annotated[int, Field(ge=0, le=INT32)] = 0

    def of(self, rows: Sequence[T]) -> Sequence[T]:
        """That part of the rows."""
        return rows[self.offset : self.offset + self.limit]


def busiest(names: Collection[str], counts_of: Callable[[str], Mapping[str, int]], most: int = MOST_NAMES) -> list[str]:
    """Those names of which the most tasks wait or run, then those with the most tasks; in the order of the alphabet."""
    if len(names) <= most:
        return sorted(names)

    def rank(name: str) -> tuple[int, int, str]:
        counts = counts_of(name)
        return -sum(counts.get(state, 0) for state in UNFINISHED), -sum(counts.values()), name

    return sorted(sorted(names, key=rank)[:most])


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of several names together."""
    total: dict[str, int] = {}
    for each in counts:
        for state, count in each.items():
            total[state] = total.get(state, 0) + count
    return total
