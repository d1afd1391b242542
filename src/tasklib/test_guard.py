"""While tests run: a queue of the program under test does not use its own database unless the test asks for it.

The pytest plugin switches this on; nowhere else is anything asked.  Refused is a queue that the program made: when its
modules were imported, or with a URL that stood in the environment before the tests began, or in a .env file.  A queue
that a test or a fixture makes with a URL of its own is the test's affair, and so is one in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tasklib.config import Config, redact_url
from tasklib.errors import ConfigurationError
from tasklib.storage.database import Database

URL_VARIABLES = ("TASKLIB_DATABASE_URL", "DATABASE_URL")
REMEDY = (
    "take the fixture tasklib_tasks (the default queue) or isolate_queue(queue), which give it a database of its own; "
    "a test that means this database is marked @pytest.mark.tasklib_database, "
    "and `tasklib_database = allow` in pytest's settings allows it to all"
)


class Guard:
    """What is known of the tests that run."""

    def __init__(self, root: Path, *, allows_all: bool) -> None:
        self.root = root
        self.environment = {os.environ[name] for name in URL_VARIABLES if os.environ.get(name)}
        self.environment |= {url for folder in {root, Path.cwd()} for url in _dotenv_urls(folder)}
        self.allows_all = allows_all
        self.test_runs = False
        self.test_allows = False

    def is_of_program(self, config: Config, *, given: bool) -> bool:
        """Whether a queue made here and now is the program's own, not one that a test has made for itself."""
        if config.is_sqlite and ":memory:" in config.database_url:
            return False
        by_test = _is_test_code(Path(_maker()), self.root)
        if config.database_url in map(_url, self.environment):
            return not (by_test and given)
        return not (by_test or self.test_runs)

    def refuse(self, config: Config) -> None:
        """Raise unless the test that runs, or all of them, may use this database."""
        if not (self.allows_all or self.test_allows):
            url = redact_url(config.database_url)
            raise ConfigurationError(f"a test would use the program's own database {url}; {REMEDY}")


guard: Guard | None = None
"""Set while tests run."""


def guarded(database: Database, config: Config, *, given: bool) -> Database:
    """The database of a queue that is being made, refused to tests where it is the program's own.

    `given` says that the URL was given by whoever makes the queue, and not taken from the environment.
    """
    if guard is None or not guard.is_of_program(config, given=given):
        return database
    return cast("Database", _Guarded(database, config))


class _Guarded:
    """A database that asks before each use."""

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config

    def __getattr__(self, name: str) -> Any:
        if guard is not None and name not in ("close", "aclose", "dialect"):
            guard.refuse(self._config)
        return getattr(self._database, name)


def _maker() -> str:
    """The file of the code that makes the queue: the nearest that is not ours."""
    frame: Any = sys._getframe(1)  # noqa: SLF001  there is no other way to ask
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tasklib":
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def _is_test_code(path: Path, root: Path) -> bool:
    """By its name, or by the name of its folder inside the project."""
    folders = path.relative_to(root).parts[:-1] if path.is_relative_to(root) else ()
    named = path.name == "conftest.py" or path.stem.startswith("test_") or path.stem.endswith("_test")
    return named or "test" in folders or "tests" in folders


def _url(text: str) -> str:
    try:
        return Config(database_url=text).database_url
    except ConfigurationError:
        return ""


def _dotenv_urls(folder: Path) -> Iterator[str]:
    """What the folder's .env files say that may be the URL of a database; those for tests are for tests."""
    for path in folder.glob(".env*"):
        if not path.is_file() or any(word in path.name for word in ("test", "example", "sample", "template")):
            continue
        for line in path.read_text("utf-8", "replace").splitlines():
            value = line.partition("=")[2].strip().strip("'\"")
            if value.startswith(("postgres", "sqlite")):
                yield value
