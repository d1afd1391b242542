"""The results of children, read from the database page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from tasklib.core.calls.groups import Group
from tasklib.errors import StorageError
from tasklib.storage.database import Database, HasDatabase
from tasklib.storage.operations.workflows.groups import FIRST, list_members
from tasklib.storage.rows import json_value
from tasklib.storage.statement import Row

R = TypeVar("R")


class StoredResults(Generic[R]):
    """The results of a group; see `Group.results`."""

    def __init__(self, group: Group[R], database: Database, read: Callable[[Any], R]) -> None:
        self._group = group
        self._database = database
        self._read = read

    @classmethod
    def of(cls, storage: HasDatabase, read: Callable[[Any], R]) -> Callable[[Group[R]], StoredResults[R]]:
        """Gives the results of a group from that database, each read as the type of its task."""
        return lambda group: cls(group, storage.database, read)

    def __iter__(self) -> Iterator[R]:
        after, seen = FIRST, 0
        while page := self._database.run(partial(list_members, self._group.id, after)):
            after, seen = str(page[-1]["id"]), seen + len(page)
            yield from self._values(page)
        self._require_all(seen)

    async def __aiter__(self) -> AsyncIterator[R]:
        after, seen = FIRST, 0
        while page := await self._database.arun(partial(list_members, self._group.id, after)):
            after, seen = str(page[-1]["id"]), seen + len(page)
            for value in self._values(page):
                yield value
        self._require_all(seen)

    def _values(self, page: Sequence[Row]) -> Iterator[R]:
        return (self._read(json_value(row["result"])["value"]) for row in page if row["state"] == "completed")

    def _require_all(self, seen: int) -> None:
        if seen < self._group.total:
            missing = self._group.total - seen
            raise StorageError(f"{missing:,} of {self._group.total:,} children are missing; were they cleaned up?")
