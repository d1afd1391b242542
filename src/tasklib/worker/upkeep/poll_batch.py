"""Small operations of an idle worker, sent together with its poll: one transaction instead of several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tasklib.core.time.timing import Timing
from tasklib.errors import TaskLibError
from tasklib.storage.database import Database
from tasklib.storage.statement import BEGIN, Operation

T = TypeVar("T")

Make = Callable[[], Operation[Any]]
"""Creates an operation, anew for each try."""

NO_POLL: Final = object()
"""The answer to an operation whose poll did not happen or failed."""


class Waiting(NamedTuple):
    """An operation that waits for the next poll."""

    make: Make
    answer: asyncio.Future[Any]


class PollBatch:
    """Collects small operations that can wait a moment, and sends them with the poll of an idle claimer."""

    def __init__(self, database: Database, timing: Timing) -> None:
        self._database = database
        self._timing = timing
        self._next_poll: float | None = None
        self._poll_seconds = 0.0
        self._waiting: list[Waiting] = []

    async def run(self, make: Callable[[], Operation[T]], *, within: float) -> T:
        """Run an operation: with the next poll if one is expected within this many seconds, else now."""
        if self.has_poll(within):
            waiting = Waiting(make, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            answer = await waiting.answer
            if answer is not NO_POLL:
                found: T = answer
                return found
        return await self._database.arun(make)

    def has_poll(self, within: float) -> bool:
        """Whether a poll is expected within this many seconds."""
        return self._next_poll is not None and self._next_poll - self._timing.monotonic() <= within

    def expect_poll(self, seconds: float) -> None:
        """Note that the claimer polls in this many seconds, unless it is woken before."""
        self._poll_seconds = seconds
        self._next_poll = self._timing.monotonic() + seconds

    async def poll(self, look: Callable[[], Operation[T]]) -> T:
        """Run the claimer's own poll together with all operations that waited for it, and return the poll's answer."""
        waiting = self._take()
        self.expect_poll(self._poll_seconds)  # Operations from now on wait for the next poll, which is likely.
        if waiting:
            makes = [look, *(each.make for each in waiting)]
            try:
                seen, *answers = await self._database.arun(lambda: self._together(makes))
            except TaskLibError:
                _answer(waiting, [NO_POLL] * len(waiting))  # Each operation, the poll too, is then sent by itself.
            except BaseException:
                _answer(waiting, [NO_POLL] * len(waiting))
                raise
            else:
                _answer(waiting, answers)
                found: T = seen
                return found
        return await self._database.arun(look)

    def no_poll(self) -> None:
        """Note that the claimer will not poll: each waiting operation is sent by itself."""
        waiting = self._take()
        _answer(waiting, [NO_POLL] * len(waiting))

    def _take(self) -> list[Waiting]:
        self._next_poll = None
        waiting, self._waiting = self._waiting, []
        return [each for each in waiting if not each.answer.done()]  # Not for callers that were stopped meanwhile.

    def _together(self, makes: Sequence[Make]) -> Operation[list[Any]]:
        operations = [make() for make in makes]
        if self._database.dialect == "postgres":
            yield BEGIN  # On SQLite it would block other writers, and saves nothing.
        answers: list[Any] = []
        for operation in operations:
            answer = yield from operation
            answers.append(answer)
        return answers


def _answer(waiting: Sequence[Waiting], answers: Sequence[Any]) -> None:
    for each, answer in zip(waiting, answers, strict=True):
        if not each.answer.done():
            each.answer.set_result(answer)
