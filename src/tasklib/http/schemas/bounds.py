"""Bounds for lists that callers can make arbitrarily long: types, workers, schedules, tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

from pydantic import Field

from tasklib.http.schemas.fields import INT32, Input

MOST_NAMES: Final = 500
"""Types with counts of their own: the busiest.  A producer can use a new type for every task."""
MOST_ROWS: Final = 1000
UNFINISHED: Final = ("pending", "running", "retrying")

T = TypeVar("T")


class ListPage(Input):
    """Selects a page of a list."""

    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = MOST_ROWS
    offset: Annotated[int, Field(ge=0, le=INT32)] = 0

    def of(self, rows: Sequence[T]) -> Sequence[T]:
        """The rows on this page."""
        return rows[self.offset : self.offset + self.limit]


def busiest(names: Collection[str], counts_of: Callable[[str], Mapping[str, int]], most: int = MOST_NAMES) -> list[str]:
    """The names with the most unfinished tasks, then those with the most tasks; sorted by name."""
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
