"""The writer's lock: one writer at a time among threads and processes, in order of arrival, for a bounded wait.

SQLite itself lets writers race for its lock with sleeps in between, which is neither fair nor bounded for the loser.
And before 3.51.3 a checkpoint that runs while another connection writes can corrupt a WAL database, so every write and
every checkpoint of ours is done under a lock file beside the database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tasklib.errors import DatabaseBusy
from tasklib.storage.forking import notice_forks
from tasklib.storage.sqlite.lock_file import LockFile, last_writer


class WriterLock:
    """Held by one writer at a time."""

    def __init__(self, path: Path | None, timeout_seconds: float, mark: Callable[[], str] = str) -> None:
        """`mark` identifies the file this process writes to, for the message if it was replaced."""
        self._path = path
        self._timeout = timeout_seconds
        self._mark = mark
        self.forget_parent()
        notice_forks(self)

    def forget_parent(self) -> None:
        """No thread of a forked child holds it, whichever held it in the parent."""
        self._mutex = threading.Lock()
        self._queue: deque[threading.Event] = deque()
        self._taken = False
        self._held: LockFile | None = None

    def acquire(self) -> None:
        """Wait for the lock; raises DatabaseBusy, naming the holder, if the wait is too long."""
        deadline = time.monotonic() + self._timeout
        self._acquire_among_threads(deadline)
        if self._path is None:
            return
        try:
            self._held = self._acquire_among_processes(self._path, deadline)
        except BaseException:
            self._release_among_threads()
            raise

    def release(self) -> None:
        """Let the next writer have it."""
        held, self._held = self._held, None
        if held is not None:
            held.release()
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

    def _acquire_among_processes(self, path: Path, deadline: float) -> LockFile:
        while True:
            file = LockFile(path)
            if not file.lock(wait=False):
                self._wait_in_line(file, path, deadline)
            if file.is_current():
                file.sign(self._mark())
                return file
            file.release()  # deleted while we waited: the next writer locks a new one

    def _wait_in_line(self, file: LockFile, path: Path, deadline: float) -> None:
        """Wait in the kernel, which serves waiters in order; a wait that timed out releases the lock later."""
        waiting = _Waiting(file)
        threading.Thread(target=waiting.run, name="tasklib-sqlite-wait", daemon=True).start()
        if not waiting.granted.wait(max(0.0, deadline - time.monotonic())) and waiting.give_up():
            holder, _ = last_writer(path)
            raise DatabaseBusy(
                f"process {holder or 'unknown'} has been writing to {path.name.removesuffix('-lock')} for "
                f"{self._timeout:g} s; end its transaction, or raise busy_timeout_seconds"
            )


class _Waiting:
    """One blocking wait for the lock file, which can be given up."""

    def __init__(self, file: LockFile) -> None:
        self._file = file
        self._mutex = threading.Lock()
        self._given_up = False
        self.granted = threading.Event()

    def run(self) -> None:
        self._file.lock(wait=True)
        with self._mutex:
            if self._given_up:
                self._file.release()
            else:
                self.granted.set()

    def give_up(self) -> bool:
        """True if the wait was given up, False if the lock came at the last moment."""
        with self._mutex:
            self._given_up = not self.granted.is_set()
            return self._given_up
