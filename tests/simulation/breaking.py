"""How a safeguard is taken out of the code: patches of functions, of SQL texts and of the schema."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from tasklib.storage.dialects import sqlite
from tasklib.worker.upkeep.self_fence import SelfFence
from tests.simulation.server import Server

Bug = Callable[[], AbstractContextManager[Any]]


def sql(name: str, old: str, new: str) -> Bug:
    """The statement with another text in place of a part of it."""

    def bug() -> AbstractContextManager[Any]:
        original = sqlite.parts

        def parts(asked: str) -> Sequence[str]:
            found = original(asked)
            return [part.replace(old, new) for part in found] if asked == name else found

        if not any(old in part for part in original(name)):
            raise AssertionError(f"{name} has no {old!r} any more: the planted bug must follow the code")
        return mock.patch.object(sqlite, "parts", parts)

    return bug


def replaced(target: Any, name: str, value: Any) -> Bug:
    """Another function, or another value, in place of one."""
    return lambda: mock.patch.object(target, name, value)


def both(first: Bug, second: Bug) -> Bug:
    """Two safeguards less, where each alone hides that the other is missing."""

    @contextmanager
    def bug() -> Generator[None]:
        with first(), second():
            yield

    return bug


def schema(statement: str) -> Bug:
    """A database without something that its schema has."""
    made = Server.__init__

    def make(server: Server, *args: Any) -> None:
        made(server, *args)
        server.connection.execute(statement)

    return lambda: mock.patch.object(Server, "__init__", make)


async def nothing(*_: Any) -> None:
    """Do nothing."""


NO_SELF_FENCE = replaced(SelfFence, "step", nothing)
