"""SQLite in a process that forks.

SQLite records in the process's memory which locks its connections hold.  A forked child has a copy of these records
but none of the locks: a connection of its own would believe them held, and be refused, or write beside its parent.  So
a child closes what it inherited before it opens the file itself.  That is harmless while those connections are idle,
and a fork waits a moment for that; a child forked during a transaction cannot use the file.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

from tasklib.errors import DatabaseUnavailable
from tasklib.storage.sqlite.file_identity import FileIdentity

FORK_WAIT_SECONDS = 1.0
"""How long a fork waits for other threads to leave SQLite; new work waits for the fork meanwhile."""


class Connection(sqlite3.Connection):
    """A connection to a file, registered so that a forked child can deal with it."""

    file: Path | None = None
    identity: FileIdentity | None = None

    def opened(self, file: Path, identity: FileIdentity) -> None:
        """Register which file this is a connection to."""
        self.file, self.identity = file, identity
        _forks.connections.add(self)

    def close(self) -> None:
        """Close it, unless the file was replaced: the last connection to close writes its own log into the file and
        deletes the log of that name, with everything that others have committed there."""
        if self.identity is not None and self.identity.is_lost:
            self.identity.keep_open()
            _keep_for_ever(self)
        else:
            super().close()


class Use:
    """Marks that this thread is using this SQLite file, inside `with` or between begin and end."""

    __slots__ = ("_file",)

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def begin(self) -> None:
        """Wait while the process forks."""
        if self._file is not None:
            with _forks.mutex:
                while _forks.is_forking:
                    _forks.changed.wait()
                _forks.uses[self] = (self._file, threading.get_ident())

    def end(self) -> None:
        """Leave SQLite."""
        if self._file is not None:
            with _forks.mutex:
                _forks.uses.pop(self, None)
                if _forks.is_forking:
                    _forks.changed.notify_all()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def close_inherited(file: Path | None) -> None:
    """Close the parent's connections to this file, if this is a forked child; raises if the parent was using them."""
    if file in _forks.used_by_parent:
        raise DatabaseUnavailable(
            f"this process was forked while its parent was in the middle of a transaction on {file}, and SQLite cannot "
            "be used safely then; fork outside of transactional tasks, or start the process by spawn or forkserver"
        )
    for connection in [each for each in _forks.inherited if each.file == file]:
        _forks.inherited.remove(connection)
        sqlite3.Connection.close(connection)


def _keep_for_ever(connection: Connection) -> None:
    """Keep the garbage collector and the end of the interpreter from closing it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class _Forks:
    """Everything that is open in this process, and what it inherited from its parent."""

    def __init__(self) -> None:
        self.connections: WeakSet[Connection] = WeakSet()
        self.inherited: list[Connection] = []
        self.used_by_parent: set[Path] = set()
        self._start()

    def _start(self) -> None:
        self.mutex = threading.RLock()
        self.changed = threading.Condition(self.mutex)
        self.uses: dict[Use, tuple[Path, int]] = {}
        self.is_forking = False

    def before(self) -> None:
        """Wait for other threads; what this thread itself has open cannot end meanwhile."""
        here = threading.get_ident()
        with self.changed:
            self.is_forking = True
            deadline = time.monotonic() + FORK_WAIT_SECONDS
            while any(thread != here for _, thread in self.uses.values()):
                if not self.changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    return

    def after_in_parent(self) -> None:
        with self.changed:
            self.is_forking = False
            self.changed.notify_all()

    def after_in_child(self) -> None:
        for connection in self.connections:
            self.inherited.append(connection)
            # One with an open transaction would undo it in memory that both processes share.
            _keep_for_ever(connection)
        self.connections.clear()
        self.used_by_parent.update(file for file, _ in self.uses.values())
        self._start()


_forks = _Forks()
os.register_at_fork(
    before=lambda: _forks.before(),
    after_in_parent=lambda: _forks.after_in_parent(),
    after_in_child=lambda: _forks.after_in_child(),
)
