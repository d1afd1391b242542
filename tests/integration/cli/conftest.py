"""The command line as a program in this process: arguments in; exit code, text or JSON out.

Only what must be a process of its own (signals, pipes, terminals, start-up) is started as one.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tasklib import Config, TaskQueue
from tasklib.cli.main import main


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


class CommandLine:
    """Calls `tasklib …` on the test's database."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self._capture = capture
        self._monkeypatch = monkeypatch

    def run(self, *arguments: str, stdin: str = "") -> Ran:
        """Run a command to its end, whatever that is."""
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capture.readouterr()
        code = main([*arguments, "--database-url", self.url])
        said = self._capture.readouterr()
        assert "Traceback" not in said.err
        return Ran(code, said.out, said.err)

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """What a command says that must succeed."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran.out

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """The JSON of a command that must succeed."""
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def fails(self, code: int, *arguments: str, stdin: str = "") -> str:
        """The one line a command says on stderr that must fail with this code."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.code == code, (ran.out, ran.err)
        assert ran.err.startswith("error: ")
        assert ran.err.count("\n") == 1
        return ran.err.removeprefix("error: ").rstrip("\n")


@pytest.fixture(autouse=True)
def _no_database_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "TASKLIB_DATABASE_URL", "TASKLIB_DEBUG", "DEMO_SECONDS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tasklib(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line on the test's database."""
    return CommandLine(database_url, capsys, monkeypatch)


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    """The same database from Python, with a task that works and one that does not."""
    with TaskQueue(Config(database_url=database_url, base_retry_delay_seconds=1000)) as queue:

        def divide(payload: dict[str, Any]) -> Any:
            return payload["a"] / payload["b"]

        queue.register_handler("divide", divide)
        yield queue
