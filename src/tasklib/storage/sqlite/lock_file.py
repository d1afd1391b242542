"""The lock file that keeps processes from writing at the same time, and how it survives forks.

flock's lock belongs to what was opened, not to a process: a child forked meanwhile shares it, and closing the file in
one of them ends nothing while the other has it open.  So it is unlocked before it is closed, and a forked child closes
its copies at once: if its parent is killed, the lock goes with it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from tasklib.errors import DatabaseUnavailable

_ours: set[int] = set()
"""Every descriptor of a lock file that is open in this process."""
_no_fork = threading.RLock()
"""Held while a descriptor is opened or closed, and by a fork, so that a child has exactly the ones listed."""


class LockFile:
    """The lock file opened once, locked or waiting to be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _no_fork:
            self._descriptor = _open(path)
            _ours.add(self._descriptor)

    def lock(self, *, wait: bool) -> bool:
        """Take the lock; False if it is taken and there is no time to wait."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def is_current(self) -> bool:
        """False if the file was deleted or replaced meanwhile, so that this lock excludes no other process."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self._descriptor), found)

    def sign(self, note: str) -> None:
        """Write the process id into it, for the message of a wait that takes too long."""
        os.pwrite(self._descriptor, f"{os.getpid()} {note}".ljust(60).encode(), 0)

    def release(self) -> None:
        """Unlock and close it."""
        with _no_fork:
            descriptor, self._descriptor = self._descriptor, -1
            _ours.remove(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def last_writer(path: Path) -> tuple[str, str]:
    """The process that had the lock last, and its note; empty if not known."""
    try:
        process, _, note = path.read_text("ascii", "replace").strip().partition(" ")
    except OSError:
        return "", ""
    return process, note


def _open(path: Path) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return _create(path)
    except OSError as error:
        raise DatabaseUnavailable(f"cannot open the lock file {path}: {error.strerror}; check the folder") from error


def _create(path: Path) -> int:
    """A new lock file, with the rights of the database: exactly those who may write there need it."""
    try:
        rights = path.with_name(path.name.removesuffix("-lock")).stat().st_mode & 0o666
    except FileNotFoundError:
        rights = 0o600
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):
        os.fchmod(descriptor, rights)
    return descriptor


def _let_go() -> None:
    """In a forked child: close the parent's descriptors without unlocking them."""
    for descriptor in _ours:
        with suppress(OSError):
            os.close(descriptor)
    _ours.clear()
    _no_fork.release()


os.register_at_fork(before=_no_fork.acquire, after_in_parent=_no_fork.release, after_in_child=_let_go)
