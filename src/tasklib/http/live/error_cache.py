"""What failed for good: grouped anew for each request while failures are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasklib.core.task import ErrorGroup
from tasklib.http.live.cache import CachedValue
from tasklib.service.error_groups import MOST_GROUPS, ErrorGroups
from tasklib.service.statistics import takes_a_while

Groups = tuple[Sequence[ErrorGroup], Mapping[str, list[int]]]


class ErrorCache:
    """What failed for good, by type and kind; of many at most five seconds old."""

    def __init__(self, groups: ErrorGroups) -> None:
        self._groups = groups
        self._seen = CachedValue(self._look, is_costly=lambda seen: takes_a_while(sum(each.count for each in seen[0])))

    async def get(self, name: str | None, limit: int) -> Groups:
        """The latest groups, of one type or of all, and how often each happened in each of the last hours."""
        groups, hours = await self._seen.get()
        if name is not None and len(groups) == MOST_GROUPS:
            return await self._groups.queue.aerrors(name, limit=limit), hours
        return [each for each in groups if name in (None, each.name)][:limit], hours

    def forget(self) -> None:
        """Look anew: some were started again."""
        self._seen.forget()

    async def _look(self) -> Groups:
        return await self._groups.queue.aerrors(limit=MOST_GROUPS), await self._groups.aby_hour()
