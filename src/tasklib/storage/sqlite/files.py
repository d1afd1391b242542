"""The files of a SQLite database: where a URL says it is, and what can be found out without opening it."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote

from tasklib.errors import ConfigurationError, DatabaseUnavailable
from tasklib.storage.sqlite.file_identity import mark_of
from tasklib.storage.sqlite.lock_file import last_writer

_OF_DRIVERS: Final = frozenset({"timeout", "check_same_thread", "detect_types", "isolation_level", "cached_statements"})
"""What SQLAlchemy's URLs may say of Python's driver, which is not for us."""


def path_of(url: str) -> Path | None:
    """The file a URL names, or None for a database in memory."""
    named, _, query = url.partition("?")
    if unknown := parse_qs(query, keep_blank_values=True).keys() - _OF_DRIVERS:
        raise ConfigurationError(
            f"a SQLite URL takes no {', '.join(sorted(unknown))!r} after a ?, and nothing would heed it: leave it out, "
            f"or write %3F where the ? belongs to the file's name, got {url!r}"
        )
    rest = unquote(named.removeprefix("sqlite:"))
    if rest in ("///:memory:", "//:memory:", ":memory:", "//"):
        return None
    if not rest.startswith("///") or rest == "///":
        raise ConfigurationError(
            f"a SQLite URL is sqlite:///file.db, sqlite:////absolute/file.db or sqlite:///:memory:, got {url!r}"
        )
    path = Path(rest.removeprefix("///")).absolute()
    if not path.parent.is_dir():
        raise DatabaseUnavailable(f"the folder {path.parent} of the SQLite file {path.name} does not exist; create it")
    return path


def create_private(path: Path) -> None:
    """Create the file, if it does not exist, for its owner alone: it holds every argument and secret.

    SQLite gives its own files beside it the same rights.  One that exists keeps its rights.
    """
    if path.exists():
        return
    with suppress(OSError):  # another process was faster, or it cannot be made: opening it says why
        try:
            # Without opening it: to close it again would end the locks of another thread's connection.
            os.mknod(os.path.realpath(path), 0o600 | stat.S_IFREG)
        except (AttributeError, PermissionError):  # where that takes the rights of root
            os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def lock_path(path: Path) -> Path:
    """The lock file beside the database."""
    return path.with_name(path.name + "-lock")


def journal_mode(connection: sqlite3.Connection, change: str = "") -> str | None:
    """The file's mode, after the change if one is asked for; None while another connection blocks it."""
    try:
        return str(connection.execute(f"PRAGMA journal_mode {change}").fetchone()[0])
    except sqlite3.OperationalError as error:
        if change and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return None
        raise


def has_write_ahead_log(path: Path | None) -> bool:
    """False if the file has another journal mode; reading it changes nothing."""
    if path is None or not path.exists():
        return True
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.Error):
        return journal_mode(connection) == "wal"
    return True


def find_replaced(path: Path | None) -> tuple[str, bool] | None:
    """The running process that wrote last, if it wrote to a file that no longer has this name, and whether another
    file has it."""
    if path is None:
        return None
    process, mark = last_writer(lock_path(path))
    found = mark_of(path)
    return (process, found is not None) if mark not in ("", found) and _lives(process) else None


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
