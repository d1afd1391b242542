"""While tests run: a queue of the program under test does not use its own database unless the test asks for it.

The pytest plugin switches this on.  Every queue that the program makes, at import or during a test, is refused, unless
its URL comes from the test: given to the program by test code, put into the environment while tests run, or a file in
pytest's temporary folder.  A queue that a test or a fixture makes with a URL of its own is allowed, as is one
in memory.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import unquote

from tasklib.core.config import Config, redact_url
from tasklib.errors import ConfigurationError
from tasklib.storage.database import Database

URL_VARIABLES = ("TASKLIB_DATABASE_URL", "DATABASE_URL")
REMEDY = (
    "take the fixture tasklib_tasks (the default queue) or isolate_queue(queue), which give it a database of its own; "
    "a test that means this database is marked @pytest.mark.tasklib_database, "
    "and `tasklib_database = allow` in pytest's settings allows it to all"
)


class TestGuard:
    """Decides which queues the running tests may use."""

    def __init__(self, root: Path, *, allows_all: bool, base_temp: Path | None = None) -> None:
        self.root = root
        self.base_temp = base_temp
        self.variables = dict(os.environ)
        self.environment = {os.environ[name] for name in URL_VARIABLES if os.environ.get(name)}
        self.environment |= {url for folder in {root, Path.cwd()} for url in _dotenv_urls(folder)}
        self.allows_all = allows_all
        self.test_runs = False
        self.test_allows = False

    def is_of_program(self, config: Config, *, given: bool) -> bool:
        """Whether the queue being made is the program's own, not one that a test makes for itself."""
        if config.is_sqlite and ":memory:" in config.database_url:
            return False
        maker = _maker()
        by_test = maker is not None and self._is_test_code(maker)
        if config.database_url in map(_url, self.environment):
            return not (by_test and given)
        return not (by_test or (self.test_runs and self._is_of_test(config.database_url, maker)))

    def refuse(self, config: Config) -> None:
        """Raise unless the test that runs, or all of them, may use this database."""
        if not (self.allows_all or self.test_allows):
            url = redact_url(config.database_url)
            raise ConfigurationError(f"a test would use the program's own database {url}; {REMEDY}")

    def _is_of_test(self, url: str, maker: FrameType | None) -> bool:
        """Whether the test that runs chose this URL, though the program makes the queue."""
        changed = (value for name, value in os.environ.items() if self.variables.get(name) != value)
        return url in map(_url, changed) or self._is_temporary(url) or self._is_passed(url, maker)

    def _is_temporary(self, url: str) -> bool:
        """Whether it is a file that pytest will remove; a program's own may be in the temporary folder too."""
        path = Path(unquote(url.partition("?")[0].removeprefix("sqlite:///"))).absolute()
        if not url.startswith("sqlite:"):
            return False
        if self.base_temp is not None:
            return path.is_relative_to(self.base_temp)
        folder = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
        if path.is_relative_to(self.root) or not path.is_relative_to(folder):
            return False
        return path.relative_to(folder).parts[0].startswith("pytest-of-")

    def _is_passed(self, url: str, frame: FrameType | None) -> bool:
        """Whether test code has given the URL to the function of the program that it called."""
        while frame is not None and frame.f_back is not None:
            if self._is_test_code(frame.f_back) and any(_names(value, url) for value in _arguments(frame)):
                return True
            frame = frame.f_back
        return False

    def _is_test_code(self, frame: FrameType) -> bool:
        """By the name of its file, or by the name of its folder inside the project."""
        path = Path(frame.f_code.co_filename)
        folders = path.relative_to(self.root).parts[:-1] if path.is_relative_to(self.root) else ()
        named = path.name == "conftest.py" or path.stem.startswith("test_") or path.stem.endswith("_test")
        return named or "test" in folders or "tests" in folders


guard: TestGuard | None = None
"""Set while tests run."""


def guarded(database: Database, config: Config, *, given: bool) -> Database:
    """The database of a queue that is being made, refused to tests where it is the program's own.

    `given` says that the URL was passed in, not taken from the environment.
    """
    if guard is None or not guard.is_of_program(config, given=given):
        return database
    return cast("Database", _Guarded(database, config))


class _Guarded:
    """A database whose every use is checked."""

    def __init__(self, database: Database, config: Config) -> None:
        self.__dict__.update(_database=database, _config=config)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._database, name, value)

    def __getattr__(self, name: str) -> Any:
        if guard is not None and name not in ("close", "aclose", "dialect", "clock"):
            guard.refuse(self._config)
        return getattr(self._database, name)


def _maker() -> FrameType | None:
    """The code that makes the queue: the nearest that is not ours."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tasklib":
        frame = frame.f_back
    return frame


def _arguments(frame: FrameType) -> list[Any]:
    """What the function was called with."""
    given = inspect.getargvalues(frame)
    names = [*given.args, *(name for name in (given.varargs, given.keywords) if name)]
    return [given.locals[name] for name in names if name in given.locals]


def _names(value: Any, url: str) -> bool:
    """Whether a value contains this URL: a text, a Config, or texts in a list or a mapping.

    Other objects are not looked into: the program's own settings, which a test may pass on, name its own database.
    """
    if isinstance(value, Config):
        return value.database_url == url
    if isinstance(value, Mapping):
        value = list(value.values())
    texts: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
    given = (each.partition("=")[2] if each.startswith("--") else each for each in texts if isinstance(each, str))
    return url in map(_url, given)


def _url(text: str) -> str:
    try:
        return Config(database_url=text).database_url
    except ConfigurationError:
        return ""


def _dotenv_urls(folder: Path) -> Iterator[str]:
    """What may be the URL of a database in the folder's .env files, those for tests left out."""
    for path in folder.glob(".env*"):
        if not path.is_file() or any(word in path.name for word in ("test", "example", "sample", "template")):
            continue
        for line in path.read_text("utf-8", "replace").splitlines():
            value = line.partition("=")[2].strip().strip("'\"")
            if value.startswith(("postgres", "sqlite")):
                yield value
