"""Workers that run a transactional task and are killed at a chosen statement of it, each a process of its own.

    python -m tests.programs.exactly_once_worker list      the points at which an attempt can end
    python -m tests.programs.exactly_once_worker kill      how workers ended of which one was killed at each point
    python -m tests.programs.exactly_once_worker finish    work until told to stop

EXACTLY_ONCE_URL is the database, EXACTLY_ONCE_KIND is `def`, `async def` or `process`, and EXACTLY_ONCE_NAMES are the
names, as JSON, under which `finish` knows the task.  A point is the name of the task whose first attempt ends there:
`09-after-COMMIT` when the answer to its ninth statement was read.  Of a task in a child process the child is killed.

The statements are seen where they enter the driver.  That only times the kill: every statement is sent as it is.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal, NoReturn

import psycopg
from psycopg._connection_base import BaseConnection
from psycopg._cursor_base import BaseCursor

from tasklib import Config, TaskContext, TaskQueue
from tasklib.core.calls.import_guard import is_child
from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.dialects.sqlite import parts
from tasklib.storage.statement import load_sql
from tests.chaos.ledger import note
from tests.fixtures.waiting import eventually

DURING_SECONDS = 0.0002
"""How long a COMMIT of SQLite goes on before its process is killed from another thread."""
PATIENCE = 180.0
"""A worker that was not killed after so many seconds is ended otherwise, which the test reports."""

Side = Literal["before", "during", "sent", "after"]
"""Where the end comes: `during`, while the database may or may not have done it, and `sent`, when it has and its answer
was not read, only for COMMIT."""

queue = TaskQueue(
    Config(
        database_url=os.environ.get("EXACTLY_ONCE_URL", "sqlite:///:memory:"),
        base_retry_delay_seconds=0.05,
        poll_interval_seconds=0.1,
    )
)
table = f"{queue.config.db_schema}.ledger" if queue.config.db_schema else "ledger"
mark = "?" if queue.config.is_sqlite else "%s"
INSERT = f"INSERT INTO {table} (task, entry, attempt) VALUES ({mark}, {mark}, {mark})"


def transfer(ctx: TaskContext) -> dict[str, int]:
    note("start", ctx)
    ctx.connection.execute(INSERT, (ctx.task.name, "debit", ctx.attempt))
    queue.enqueue("receipt", {"of": ctx.task.name})
    queue.submit_new([queue.new_by_name("letter", {"of": ctx.task.name, "page": page}) for page in (1, 2)])
    ctx.connection.execute(INSERT, (ctx.task.name, "credit", ctx.attempt))
    note("end", ctx)
    return {"attempt": ctx.attempt}


async def transfer_async(ctx: TaskContext) -> dict[str, int]:
    note("start", ctx)
    await awaited(ctx.connection.execute(INSERT, (ctx.task.name, "debit", ctx.attempt)))
    await queue.aenqueue("receipt", {"of": ctx.task.name})
    await queue.asubmit_new([queue.new_by_name("letter", {"of": ctx.task.name, "page": page}) for page in (1, 2)])
    await awaited(ctx.connection.execute(INSERT, (ctx.task.name, "credit", ctx.attempt)))
    note("end", ctx)
    return {"attempt": ctx.attempt}


async def awaited(answer: Any) -> Any:
    """What SQLite gives at once and PostgreSQL when it is awaited."""
    return await answer if inspect.isawaitable(answer) else answer


def define(*names: str) -> None:
    """Let the queue know the task under each of these names."""
    kind = os.environ.get("EXACTLY_ONCE_KIND")
    function, isolation = (
        transfer_async if kind == "async def" else transfer,
        "process" if kind == "process" else "auto",
    )
    if kind != "process":
        # What cannot be imported is not run in a child process, where the worker would run what it has lost once.
        function.__qualname__ = f"<locals>.{function.__name__}"
    for name in names:
        queue.register_handler(name, function, transactional=True, isolation=isolation)  # type: ignore[arg-type]


class Fuse:
    """Sees the statements of an attempt, from the one that opens the transaction to COMMIT, and burns at its point.

    The point is the name of the task, if that is known here already; else it is found where the transaction is opened.
    """

    def __init__(self, point: str | None = None) -> None:
        self.statements: list[str] = []
        self.committed = threading.Event()
        self._point = point
        self._connection: Any = None
        self._names = names_of_statements()

    @contextmanager
    def around(self, connection: Any, text: str) -> Iterator[None]:
        """A statement, from before it is sent until its answer was read."""
        if text.startswith("BEGIN") and (opener := opener_of_transaction()) is not None:
            self._connection, self.statements = connection, []
            self._point = point_in(opener) or self._point
        if connection is not self._connection:
            yield
            return
        self.statements.append(self._names.get(text) or " ".join(text.replace(f"{table} ", "ledger ").split()[:3]))
        self._before(connection)
        yield
        self._burn("after")
        if text == "COMMIT":
            self._connection = None
            self.committed.set()

    def _before(self, connection: Any) -> None:
        self._burn("before")
        if self._is_at("during") and isinstance(connection, sqlite3.Connection):
            threading.Timer(DURING_SECONDS, die).start()
        elif self._is_at("during"):
            send_commit(connection)
            die()
        elif self._is_at("sent"):
            send_commit(connection)
            eventually(self._took_effect, PATIENCE)
            die()

    def _is_at(self, side: Side) -> bool:
        return self._point is not None and self._point.startswith(f"{len(self.statements):02}-{side}-")

    def _burn(self, side: Side) -> None:
        if self._is_at(side):
            die()

    def _took_effect(self) -> bool:
        """Whether another connection sees it."""
        with psycopg.connect(queue.config.database_url, autocommit=True) as connection:
            return bool(connection.execute(f"SELECT 1 FROM {table} WHERE task = %s", [self._point]).fetchall())


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def send_commit(connection: Any) -> None:
    """Send COMMIT, and read no answer."""
    connection.pgconn.send_query(b"COMMIT")
    while connection.pgconn.flush():
        pass


def opener_of_transaction() -> FrameType | None:
    """The storage's `transaction` or `atransaction`, if it is what sends this statement, however indirectly."""
    for frame in frames_from(sys._getframe()):
        if frame.f_code.co_name in ("transaction", "atransaction") and "/storage/" in frame.f_code.co_filename:
            return frame
    return None


def point_in(opener: FrameType) -> str | None:
    """Where the task shall end for which this transaction is opened in a child process: by its name, but only once."""
    for frame in frames_from(opener):
        if frame.f_code.co_name == "_transactional":
            task = frame.f_locals["task"]
            return str(task.name) if task.attempts == 1 else "never"
    return None


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def names_of_statements() -> dict[str, str]:
    """The names of our statements by their text."""
    if queue.config.db_schema is not None:
        return {text: name for name, text in PostgresDialect(queue.config.db_schema).pyformat.items()}
    # Statements may share a part: the shortest one is it, and the others contain it.
    longest_first = sorted(load_sql("sqlite"), key=lambda name: -len(parts(name)))
    return {part: name for name in longest_first for part in parts(name)}


def see_statements(fuse: Fuse) -> None:
    """Let the fuse see everything that both drivers send."""
    execute, command, connect = BaseCursor._execute_gen, BaseConnection._exec_command, sqlite3.connect

    def execute_gen(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with fuse.around(cursor._conn, query.decode() if isinstance(query, bytes) else str(query)):
            return (yield from execute(cursor, query, *args, **kwargs))

    def exec_command(connection: Any, text: bytes, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with fuse.around(connection, text.decode()):
            return (yield from command(connection, text, *args, **kwargs))

    def connect_seen(*args: Any, factory: Any = sqlite3.Connection, **kwargs: Any) -> Any:
        class Seen(factory):  # type: ignore[misc]
            def execute(self, text: str, *args: Any) -> Any:
                with fuse.around(self, text):
                    return super().execute(text, *args)

            def cursor(self, *args: Any) -> Any:
                return see_cursor(super().cursor(*args))

        return connect(*args, factory=Seen, **kwargs)

    def see_cursor(cursor: Any) -> Any:
        class Seen(type(cursor)):  # type: ignore[misc]
            def execute(self, text: str, *args: Any) -> Any:
                with fuse.around(self.connection, text):
                    return super().execute(text, *args)

        return Seen(cursor.connection)

    BaseCursor._execute_gen = execute_gen  # type: ignore[method-assign, assignment]
    BaseConnection._exec_command = exec_command  # type: ignore[method-assign, assignment]
    sqlite3.connect = connect_seen  # type: ignore[assignment]


def run_alone(name: str, report: int) -> None:
    """Run the task of that name in a worker service of this process, which ends at its point, or after COMMIT."""
    signal.alarm(round(PATIENCE))
    define(name)
    fuse = Fuse(name)
    see_statements(fuse)

    def stop_when_committed() -> None:
        fuse.committed.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_committed, daemon=True).start()
    queue.enqueue(name)
    queue.run()
    queue.close()
    os.write(report, json.dumps(fuse.statements).encode())


def fork_worker(name: str) -> tuple[int, list[str]]:
    """Start a worker process; returns the signal that ended it, 0 for a stop in order, and the statements it sent."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run_alone(name, writer)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader) as report:
        statements = json.loads(report.read() or "[]")
    _, status = os.waitpid(pid, 0)
    return -os.waitstatus_to_exitcode(status), statements


def list_points() -> list[str]:
    """The points of an attempt, found by one that nobody ends."""
    ended, statements = fork_worker("unharmed")
    assert ended == 0, ended
    points = []
    for number, statement in enumerate(statements, 1):
        sides: list[Side] = ["before", "after"]
        if statement == "COMMIT":
            # SQLite runs in the same process: there is no answer to wait for.
            sides[1:1] = ["during"] if queue.config.is_sqlite else ["during", "sent"]
        points += [f"{number:02}-{side}-{statement.replace(' ', '-')}" for side in sides]
    return points


def kill() -> dict[str, int]:
    """The signal that ended the worker of each point."""
    return {point: fork_worker(point)[0] for point in list_points()}


def finish() -> None:
    """Work on what is left until SIGTERM."""
    queue.run(concurrency=4)
    queue.close()


define(*json.loads(os.environ.get("EXACTLY_ONCE_NAMES", "[]")))

if __name__ == "__main__":
    print(json.dumps({"list": list_points, "kill": kill, "finish": finish}[sys.argv[1]]()))
elif is_child():
    see_statements(Fuse())
