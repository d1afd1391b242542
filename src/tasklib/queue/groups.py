"""The children that a workflow has waited for, and their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from tasklib.errors import StorageError
from tasklib.storage.database import Database
from tasklib.storage.operations.workflows.groups import list_members
from tasklib.storage.rows import json_value
from tasklib.storage.statement import Row

R = TypeVar("R")


class Group(Generic[R]):
    """Children that have ended: how many there were, how many failed, and the results of the others."""

    def __init__(
        self,
        group_id: str,
        *,
        total: int,
        failed: int,
        cancelled: int,
        database: Callable[[], Database],
        read: Callable[[Any], R],
    ) -> None:
        self.id = group_id
        self.total = total
        self.failed = failed
        """Those that failed for good or were buried."""
        self.cancelled = cancelled
        self._database = database
        self._read = read

    def results(self) -> Results[R]:
        """What the children returned, in the order of their inputs, without those that failed; read page by page.

        Works in `for` and in `async for`.
        """
        return Results(self, self._database(), self._read)

    def __len__(self) -> int:
        return self.total

    def __repr__(self) -> str:
        return f"<Group of {self.total:,} children, {self.failed:,} failed, {self.cancelled:,} cancelled>"


class Results(Generic[R]):
    """The results of a group; see `Group.results`."""

    def __init__(self, group: Group[R], database: Database, read: Callable[[Any], R]) -> None:
        self._group = group
        self._database = database
        self._read = read

    def __iter__(self) -> Iterator[R]:
        after, seen = 0, 0
        while page := self._database.run(partial(list_members, self._group.id, after)):
            after, seen = page[-1]["seq"], seen + len(page)
            yield from self._values(page)
        self._require_all(seen)

    async def __aiter__(self) -> AsyncIterator[R]:
        after, seen = 0, 0
        while page := await self._database.arun(partial(list_members, self._group.id, after)):
            after, seen = page[-1]["seq"], seen + len(page)
            for value in self._values(page):
                yield value
        self._require_all(seen)

    def _values(self, page: Sequence[Row]) -> Iterator[R]:
        return (self._read(json_value(row["result"])["value"]) for row in page if row["state"] == "completed")

    def _require_all(self, seen: int) -> None:
        if seen < self._group.total:
            missing = self._group.total - seen
            raise StorageError(f"{missing:,} of {self._group.total:,} children are missing; were they cleaned up?")
