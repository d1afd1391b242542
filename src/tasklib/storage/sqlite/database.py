"""SQLite through the standard library: one connection that writes, and others that read beside it."""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import current_context
from tasklib.core.config import Config
from tasklib.core.time.clock import Clock
from tasklib.errors import ConfigurationError, DatabaseBusy, DatabaseUnavailable, StorageError
from tasklib.storage.database import Listener, Transaction
from tasklib.storage.dialects.sqlite import SqliteDialect, translate
from tasklib.storage.forking import notice_forks
from tasklib.storage.run import Steps, run_blocking, steps
from tasklib.storage.sqlite import schema
from tasklib.storage.sqlite.across_forks import Connection, Use, close_inherited
from tasklib.storage.sqlite.borrowed import LentConnection, Loan
from tasklib.storage.sqlite.file_identity import FileIdentity
from tasklib.storage.sqlite.files import create_private, journal_mode, lock_path, path_of
from tasklib.storage.sqlite.session import Session
from tasklib.storage.sqlite.threads import Threads
from tasklib.storage.sqlite.watcher import SqliteWatcher
from tasklib.storage.sqlite.writer_lock import WriterLock
from tasklib.storage.statement import BEGIN, COMMIT, Operation, T

OLDEST = (3, 40, 0)
CHECKPOINT_BYTES = 4 << 20
"""Size of the write-ahead log from which a commit also checkpoints."""
READERS = 4

C = TypeVar("C", bound=Connection)

_CONNECTION_SQL = (Path(__file__).parent / "connection.sql").read_text("utf-8")


class SqliteDatabase:
    """One SQLite file, or one database in memory."""

    dialect = "sqlite"

    def __init__(self, config: Config, clock: Clock) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"this Python links SQLite {sqlite3.sqlite_version}; tasklib needs 3.40 or newer: upgrade Python, "
                "or use PostgreSQL"
            )
        self._config = config
        self.clock = clock
        self.path = path_of(config.database_url)
        self.file = FileIdentity(self.path)
        self.gate = WriterLock(
            None if self.path is None else lock_path(self.path), config.busy_timeout_seconds, lambda: self.file.mark
        )
        self.watcher = SqliteWatcher(None if self.path is None else self._connect, self.path)
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._reset()
        notice_forks(self)

    def _reset(self) -> None:
        self._open_lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._single_threads: dict[str, ThreadPoolExecutor] = {}
        self.process = os.getpid()

    def forget_parent(self) -> None:
        """A forked child opens connections of its own; see across_forks.py."""
        self._writer, self._readers = None, []
        self._reset()

    def run(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation in this thread."""
        return self._run(steps(make(), translate, self.clock), self._is_lent_here())

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation in a thread of its own pool."""
        todo = steps(make(), translate, self.clock)
        with self._open_lock:
            if self._threads is None:
                self._threads = Threads(READERS, thread_name_prefix="tasklib-sqlite")
            threads = self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, self._run, todo, self._is_lent_here())

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside the caller's transaction."""
        self._opened_beside()
        from tasklib.storage.enlist import enlist

        return enlist(connection, SqliteDialect(), self.clock).run(make())

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside the caller's transaction, awaiting."""
        if self._writer is not None:
            self.file.check()
        else:
            await asyncio.to_thread(self._opened_beside)
        from tasklib.storage.enlist import enlist

        return await enlist(connection, SqliteDialect(), self.clock).arun(make())

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """A transaction on a connection of its own.  All other writers wait for it, so one that is too long is undone.

        Whatever the user's code sets on that connection ends with it.  A database in memory has only one connection,
        which is lent and cannot be used otherwise before it is returned.
        """
        writer = self._opened()
        connection = writer if isinstance(writer, LentConnection) else self._connect_as(LentConnection)
        session = Session(self, connection)

        def undo() -> None:
            if connection is writer:
                connection.execute("ROLLBACK")
            else:
                connection.execute("PRAGMA query_only = ON")
                session.close()

        try:
            session.execute_translated(BEGIN)
            with Loan(connection, self._config.busy_timeout_seconds / 2, undo) as loan:
                yield _Transaction(connection, loan, self.clock)
            session.execute_translated(COMMIT)
        finally:
            session.close()
            if connection is writer:
                connection.row_factory, connection.text_factory = None, str
            elif not session.is_inherited:
                connection.close()

    @asynccontextmanager
    async def atransaction(self) -> AsyncGenerator[Transaction]:
        """The same, with the writer's lock awaited in a thread.

        Beginning and ending have a thread each, because the shared ones may all be waiting for this very lock.
        """
        block = self.transaction()
        turn = self._one_by_one("turns").submit(block.__enter__)
        try:
            transaction = await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            turn.add_done_callback(functools.partial(_give_back, block))
            raise
        try:
            yield transaction
        except BaseException as error:
            if not block.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            await asyncio.wrap_future(self._one_by_one("ends").submit(block.__exit__, None, None, None))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Watch the file for commits."""
        self._opened()
        return self.watcher.subscribe(listener)

    def migrate(self) -> list[str]:
        """Apply what is missing, whatever auto_migrate says."""
        with self._open_lock:
            if self._writer is not None:
                return self._in_turn(self._writer)
            connection = self._connect()
            try:
                applied = self._in_turn(connection)
            except BaseException:
                connection.close()
                raise
            self.file.note()
            self._writer = connection  # a database in memory would be gone with its connection
            return applied

    def migration_script(self) -> str:
        """What `migrate` would run now, as SQL; empty if nothing is missing.  Changes nothing, and makes no file."""
        path = self.path if self.path is not None and self.path.exists() else None
        target = "file::memory:" if path is None else f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(target, uri=True, timeout=self._config.busy_timeout_seconds)) as connection:
            try:
                return schema.migration_script(connection)
            except sqlite3.Error as error:
                raise translate(error) from error

    def __del__(self) -> None:
        # For a queue that was not closed: Python 3.13 and later warn of connections left to the garbage collector.
        try:
            for connection in (*self._readers, self._writer):
                if connection is not None:
                    connection.close()
        except Exception:  # noqa: BLE001  half-made, or the interpreter is shutting down
            pass

    def close(self) -> None:
        """Close every connection; a database in memory is gone with it."""
        self.watcher.close()
        with self._open_lock:
            threads, self._threads = [self._threads, *self._single_threads.values()], None
            self._single_threads = {}
            connections = [*self._readers, *([self._writer] if self._writer else [])]
            self._readers, self._writer = [], None
        for executor in threads:
            if executor is not None:
                executor.shutdown(wait=True)
        if connections:
            # The last connection to close checkpoints, which is a write like any other.
            self.gate.acquire()
            try:
                with Use(self.path):
                    for connection in connections:
                        connection.close()
            finally:
                self.gate.release()

    async def aclose(self) -> None:
        """Close every connection without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def _run(self, todo: Steps[T], is_lent_here: bool) -> T:
        session = Session(self, self._opened(), is_lent_here)
        try:
            return run_blocking(todo, session.execute)
        finally:
            session.close()

    def _is_lent_here(self) -> bool:
        """Whether this is called by the function of a transactional task that has the writer."""
        running: TaskContext | None = current_context(None)
        return running is not None and running.transaction_of(self) is not None

    def _opened(self) -> sqlite3.Connection:
        """The writer's connection, opened and its schema checked the first time."""
        if self._writer is not None:
            return self._writer
        with self._open_lock:
            if self._writer is None:
                connection = self._connect()
                try:
                    with Use(self.path):
                        needed = schema.needs_migration(connection, allowed=self._config.auto_migrate)
                    if needed:
                        self._in_turn(connection)
                except sqlite3.Error as error:
                    connection.close()
                    raise translate(error) from error
                except BaseException:
                    connection.close()
                    raise
                self.file.note()
                self._writer = connection
            return self._writer

    def _opened_beside(self) -> None:
        """The same beside a transaction of the caller, which blocks it if the tables must be made first."""
        try:
            self._opened()
            self.file.check()
        except DatabaseBusy as error:
            raise DatabaseBusy(
                "the queue was used for the first time inside this transaction, which keeps it from making its tables; "
                "run `tasklib migrate`, or use the queue once before"
            ) from error

    def _in_turn(self, connection: sqlite3.Connection) -> list[str]:
        self.gate.acquire()
        try:
            with Use(self.path):
                return schema.migrate(connection)
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            self.gate.release()

    def _one_by_one(self, what: str) -> ThreadPoolExecutor:
        with self._open_lock:
            if what not in self._single_threads:
                self._single_threads[what] = Threads(1, thread_name_prefix=f"tasklib-sqlite-{what}")
            return self._single_threads[what]

    def _connect(self) -> sqlite3.Connection:
        """A new connection; that of a database in memory can be lent, because it is the only one."""
        return self._connect_as(LentConnection if self.path is None else Connection)

    def _connect_as(self, kind: type[C]) -> C:
        close_inherited(self.path)
        self.file.check_before_opening()
        with Use(self.path):
            connection = self._connect_now(kind)
        if self.path is not None:
            connection.opened(self.path, self.file)
        return connection

    def _connect_now(self, kind: type[C]) -> C:
        target = ":memory:" if self.path is None else str(self.path)
        connection = None
        if self.path is not None:
            create_private(self.path)
        try:
            connection = sqlite3.connect(
                target,
                timeout=self._config.busy_timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=kind,
            )
            self._prepare(connection)
        except Exception as error:
            if connection is not None:
                connection.close()
            if not isinstance(error, sqlite3.Error):
                raise
            if isinstance(translated := translate(error), DatabaseBusy):
                raise translated from error
            raise DatabaseUnavailable(
                f"cannot open the SQLite file {target}: {error}; check that its folder exists and can be written, "
                "and that it is a SQLite database"
            ) from error
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if self.path is not None and journal_mode(connection) != "wal":
            self._use_write_ahead_log(connection)
        # Commits survive a power cut; checkpoints are done under the writer's lock, see writer_lock.py.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # When the log starts over it is cut to this, so that its size shows when to checkpoint again.
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        connection.executescript(_CONNECTION_SQL)

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Change the file's mode, once in its life.  SQLite calls no busy handler here, so the wait is ours."""
        deadline = time.monotonic() + self._config.busy_timeout_seconds
        self.gate.acquire()
        try:
            while (mode := journal_mode(connection, "= WAL")) is None and time.monotonic() < deadline:
                time.sleep(0.005)
        finally:
            self.gate.release()
        if mode is None:
            raise DatabaseBusy(
                f"another program keeps {self.path} open in a transaction, so its write-ahead log cannot be turned on; "
                "end that transaction, or raise busy_timeout_seconds"
            )
        if mode != "wal":
            raise StorageError(f"{self.path} cannot use a write-ahead log (got {mode}); is it on a network disk?")

    def reader(self) -> sqlite3.Connection:
        self.file.check("nothing was read")
        with self._open_lock:
            return self._readers.pop() if self._readers else self._connect()

    def give_back(self, reader: sqlite3.Connection) -> None:
        with self._open_lock:
            if self._writer is not None and len(self._readers) < READERS:
                self._readers.append(reader)
                return
        reader.close()

    def committed(self, writer: sqlite3.Connection, log_bytes: int) -> None:
        """After every commit that changed something, with the writer's lock still held: keep the log short."""
        if log_bytes > CHECKPOINT_BYTES:
            with suppress(sqlite3.Error):  # what was committed stays so; the next commit tries again
                writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


class _Transaction:
    """A connection with a transaction open, lent to the user's code."""

    def __init__(self, connection: LentConnection, loan: Loan, clock: Clock) -> None:
        self.connection = connection
        self._loan = loan
        self._clock = clock

    def run(self, make: Callable[[], Operation[T]]) -> T:
        from tasklib.storage.enlist import enlist

        return enlist(self.connection, SqliteDialect(), self._clock).run(make())

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        return self.run(make)

    def abort(self) -> None:
        self._loan.expire()


def _give_back(block: AbstractContextManager[Transaction], turn: Future[Transaction]) -> None:
    """Undo a transaction that began after its caller had stopped waiting."""
    if not turn.cancelled() and turn.exception() is None:
        late = asyncio.CancelledError()
        block.__exit__(type(late), late, None)
