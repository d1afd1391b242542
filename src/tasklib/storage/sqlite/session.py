"""The connection side of one operation: reads beside the writer, and writes under its lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tasklib.errors import ContextError
from tasklib.storage.dialects.sqlite import commits_itself, execute, translate
from tasklib.storage.sqlite.across_forks import Use
from tasklib.storage.sqlite.file_identity import FileIdentity
from tasklib.storage.sqlite.watcher import SqliteWatcher
from tasklib.storage.sqlite.writer_lock import WriterLock
from tasklib.storage.statement import BEGIN, COMMIT, ROLLBACK, Row, Statement, load_sql


class Host(Protocol):
    """What a session needs of its database."""

    path: Path | None
    process: int
    """The process whose connections these are; another one in a forked child."""
    file: FileIdentity
    gate: WriterLock
    watcher: SqliteWatcher

    def reader(self) -> sqlite3.Connection:
        """A connection to read with."""
        ...

    def give_back(self, reader: sqlite3.Connection) -> None:
        """Return it for the next reader."""
        ...

    def committed(self, writer: sqlite3.Connection, log_bytes: int) -> None:
        """After every commit that changed something, with the writer's lock still held."""
        ...


class Session:
    """Runs the statements of one operation."""

    def __init__(self, database: Host, writer: sqlite3.Connection, is_lent_here: bool = False) -> None:
        self._database = database
        self._writer = writer
        self._is_lent_here = is_lent_here
        self._writing = False
        self._changes = 0
        self._process = database.process
        self._use = Use(database.path)

    @property
    def is_inherited(self) -> bool:
        """True in a child that was forked while this was open."""
        return self._process != self._database.process

    def execute(self, statement: Statement) -> Sequence[Row]:
        match statement.name:
            case BEGIN.name:
                self._begin()
                return ()
            case COMMIT.name:
                self._end("COMMIT")
                return ()
            case ROLLBACK.name:
                self._end("ROLLBACK")
                return ()
            case _:
                return self._run(statement)

    def execute_translated(self, statement: Statement) -> None:
        """Begin or end outside an operation, with errors as ours."""
        try:
            self.execute(statement)
        except sqlite3.Error as error:
            raise translate(error) from error

    def _run(self, statement: Statement) -> Sequence[Row]:
        if self._writing:
            return execute(self._writer, statement.name, statement.params)
        if self._database.path is None or load_sql("sqlite")[statement.name].writes:
            return self._alone(statement)
        return self._read(statement)

    def close(self) -> None:
        if self._writing:
            self._end("ROLLBACK")

    def _begin(self) -> None:
        self._enter()
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._leave()
            raise
        self._writing = True

    def _enter(self) -> None:
        """Take the writer's lock."""
        if self._is_lent_here:
            raise ContextError(
                "this would wait for the very transaction it is called in: a transactional task has SQLite's only "
                "writer; inside one submit tasks, and do the rest in a task that you submit"
            )
        self._database.gate.acquire()
        try:
            self._use.begin()
            self._database.file.check()
        except BaseException:
            self._leave()
            raise
        self._changes = self._writer.total_changes

    def _leave(self) -> None:
        self._writing = False
        self._use.end()
        self._database.gate.release()

    def _end(self, how: str) -> None:
        if self.is_inherited:
            self._writing = False
            if how == "COMMIT":
                raise ContextError(
                    "this process was forked inside a transaction, which only its parent can commit; end the child "
                    "with os._exit() before it returns there"
                )
            return
        changed = False
        try:
            try:
                if how == "COMMIT" or self._writer.in_transaction:  # SQLite rolls back by itself after some errors
                    self._writer.execute(how)
                changed = how == "COMMIT" and self._changed()
            except sqlite3.Error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
        finally:
            self._leave()
        if changed:
            self._database.watcher.notify()

    def _changed(self) -> bool:
        """After a commit, with the writer's lock still held: whether it stored anything, and that it is in the file."""
        if self._writer.total_changes == self._changes:
            return False
        log_bytes = self._database.file.check("what was just written is in the old file")
        self._database.committed(self._writer, log_bytes)
        return True

    def _alone(self, statement: Statement) -> Sequence[Row]:
        if commits_itself(statement.name):
            return self._at_once(statement)
        self._begin()
        try:
            rows = execute(self._writer, statement.name, statement.params)
        except BaseException:
            self._end("ROLLBACK")
            raise
        self._end("COMMIT")
        return rows

    def _at_once(self, statement: Statement) -> Sequence[Row]:
        self._enter()
        try:
            execute(self._writer, statement.name, statement.params)
            changed = self._changed()
        finally:
            self._leave()
        if changed:
            self._database.watcher.notify()
        return ()

    def _read(self, statement: Statement) -> Sequence[Row]:
        reader = self._database.reader()
        try:
            with self._use:
                return execute(reader, statement.name, statement.params)
        finally:
            self._database.give_back(reader)
