"""The turn to write: one writer at a time among threads and processes, in the order they came, for a bounded wait.

SQLite itself lets writers race for its lock with sleeps in between, which is neither fair nor bounded for the loser.
And before 3.51.3 a checkpoint that runs while another connection writes can corrupt a WAL database, so every write and
every checkpoint of ours happens in turn, under a lock file beside the database.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from pathlib import Path

from tasklib.errors import DatabaseBusy, DatabaseUnavailable


class WriterGate:
    """Hands the turn to write to one holder at a time."""

    def __init__(self, path: Path | None, timeout_seconds: float) -> None:
        self._path = path
        self._timeout = timeout_seconds
        self._mutex = threading.Lock()
        self._queue: deque[threading.Event] = deque()
        self._taken = False
        self._descriptor = -1

    def acquire(self) -> None:
        """Wait for the turn; raises DatabaseBusy, naming the holder, when it does not come in time."""
        deadline = time.monotonic() + self._timeout
        self._acquire_among_threads(deadline)
        if self._path is None:
            return
        try:
            self._acquire_among_processes(self._path, deadline)
        except BaseException:
            self._release_among_threads()
            raise

    def release(self) -> None:
        """Pass the turn on."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._release_among_threads()

    def _acquire_among_threads(self, deadline: float) -> None:
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Event()
            self._queue.append(turn)
        if turn.wait(max(0.0, deadline - time.monotonic())):
            return
        with self._mutex:
            if turn.is_set():
                return
            self._queue.remove(turn)
        raise DatabaseBusy(
            f"this process has been writing to the SQLite file for {self._timeout:g} s; a transaction was left open, "
            "or a transactional task is too long"
        )

    def _release_among_threads(self) -> None:
        with self._mutex:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._taken = False

    def _acquire_among_processes(self, path: Path, deadline: float) -> None:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            descriptor = self._wait_in_line(descriptor, path, deadline)
        self._descriptor = descriptor
        os.pwrite(descriptor, f"{os.getpid():<20}".encode(), 0)

    def _wait_in_line(self, descriptor: int, path: Path, deadline: float) -> int:
        """Queue up in the kernel, which serves waiters in order; a wait that is given up releases itself later."""
        waiting = _Waiting(descriptor)
        threading.Thread(target=waiting.run, name="tasklib-sqlite-wait", daemon=True).start()
        if not waiting.granted.wait(max(0.0, deadline - time.monotonic())) and waiting.give_up():
            holder = _holder(path)
            raise DatabaseBusy(
                f"process {holder or 'unknown'} has been writing to {path.name.removesuffix('-lock')} for "
                f"{self._timeout:g} s; end its transaction, or raise busy_timeout_seconds"
            )
        return descriptor


class _Waiting:
    """One blocking wait for the lock file, which can be given up."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._given_up = False
        self.granted = threading.Event()

    def run(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._mutex:
            if self._given_up:
                os.close(self._descriptor)
            else:
                self.granted.set()

    def give_up(self) -> bool:
        """True if the wait was given up, False if the lock came at the last moment."""
        with self._mutex:
            self._given_up = not self.granted.is_set()
            return self._given_up


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DatabaseUnavailable(f"cannot open the lock file {path}: {error.strerror}; check the folder") from error


def _holder(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""
