"""How a simulated process reaches the database: slowly, and sometimes not at all.

Each operation is the production code's, and runs as a whole at one moment.  Around it the link decides when the request
arrives, whether it does, between which statements the connection breaks, and whether the reply comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Generic, cast

from tasklib.core.time.clock import Clock
from tasklib.errors import DatabaseBusy, DatabaseUnavailable
from tasklib.storage.database import Listener
from tasklib.storage.dialects.sqlite import SqliteDialect, translate
from tasklib.storage.enlist import enlist
from tasklib.storage.run import steps
from tasklib.storage.sqlite.session import Session
from tasklib.storage.statement import BEGIN, COMMIT, ROLLBACK, Operation, Row, Statement, T
from tests.simulation.loop import Process
from tests.simulation.server import Server

QUIET = frozenset(
    [
        "claim_tasks",
        "beat",
        "renew_leases",
        "renew_held",
        "register_worker",
        "forget_worker",
        "begin_generation",
        "report_progress",
        "append_log",
        "add_metrics",
        "take_chore",
        "note_chore",
        "keep_statistics",
        "fold_totals",
        "add_depths",
        "merge_metrics",
        "move_schedule",
        "note_run",
        "declare_limits",
        "take_limits",
        "spend_tokens",
        "take_keys",
        "settle_hints",
        "put_schedule",
    ]
)
"""Statements that write without giving anybody work, and send no notification."""
BUSY_SECONDS = 4.0
"""How long to wait for the only writer."""
LOAN_SECONDS = 2.0
"""How long a transaction may keep everybody else waiting, as on SQLite."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network is: probabilities per operation, and seconds."""

    latency: float = 0.002
    lost_request: float = 0.0
    lost_reply: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    """The client learns that the connection is gone, and the request arrives all the same, later."""
    lost_notice: float = 0.0
    slow: float = 0.0
    """A call that takes a hundred times as long."""


CALM = Weather()


class Link:
    """The database as one process reaches it; the `Database` that its queue is given."""

    dialect = "sqlite"

    def __init__(self, server: Server, process: Process, random: Random) -> None:
        self.server = server
        self.process = process
        self.clock: Clock = server
        self.weather = CALM
        self.is_cut = False
        self.operations = 0
        self._random = random
        self._loop = server.loop
        process.on_death.append(self._forget)

    def delay(self) -> float:
        """How long a message takes now."""
        usual = self.weather.latency * self._random.uniform(0.2, 2.0)
        return usual * 100 if self._random.random() < self.weather.slow else usual

    def skewed_clock(self) -> Clock:
        """A clock that is wrong by some seconds, as that of a machine may be."""
        return _SkewedClock(self.server, self._random.uniform(-20.0, 20.0))

    def loses_notice(self) -> bool:
        """Whether the next notification does not arrive."""
        return self.is_cut or self._random.random() < self.weather.lost_notice

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Send an operation; a repeatable one is sent once more after a broken connection, as drivers do here."""
        memory: dict[str, Any] = {}
        try:
            return await self._send(make, memory)
        except DatabaseUnavailable:
            if not repeatable:
                raise
        await asyncio.sleep(self._random.uniform(0.0, 0.02))
        return await self._send(make, memory)

    def run(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """The blocking form: the same in no time."""
        if self.server.is_away or self.is_cut:
            raise _gone("no answer")
        if self.server.transaction is not None:
            raise DatabaseBusy("another transaction is open")
        call = _Call(self, make, {}, self._draw(), copy_context())
        while not call.proceed():
            pass
        return cast("T", call.result)

    async def _send(self, make: Callable[[], Operation[T]], memory: dict[str, Any]) -> T:
        if self.server.is_away or self.is_cut:
            # A refused connection fails at once, a lost one when the driver's patience ends.
            await asyncio.sleep(self._random.choice((0.001, 0.05, 2.0)))
            raise _gone("cannot connect")
        answer: asyncio.Future[T] = self._loop.create_future()
        call = _Call(self, make, memory, self._draw(), copy_context())
        arrival = self.delay()
        if call.fault == "late":
            self._in(arrival, _fail, answer, "the connection is gone, the request is under way")
            arrival += self._random.uniform(0.0, 3.0)
        self._in(arrival, self._arrive, call, answer)
        return await answer

    def _arrive(self, call: _Call[T], answer: asyncio.Future[T]) -> None:
        """In the server: the request is here."""
        if self.server.is_away or self.is_cut:
            _fail(answer, "the connection is gone")
        elif call.fault == "lost request":
            self.server.history.add(self.process, "request lost")
            self._in(self._random.choice((0.01, 1.0)), _fail, answer, "the connection is gone")
        else:
            self.server.when_free(lambda: self._execute(call, answer))

    def _execute(self, call: _Call[T], answer: asyncio.Future[T]) -> None:
        """Run the operation up to the next moment at which others can come between."""
        try:
            is_over = call.proceed()
        except Exception as error:  # noqa: BLE001  whatever the operation raised
            self._in(self.delay(), _settle, answer, None, error)
            return
        if is_over:
            self._in(self.delay(), _settle, answer, call.result, None)
        else:
            self._in(2 * self.delay(), self.server.when_free, lambda: self._execute(call, answer))

    def pauses(self) -> bool:
        """Whether others come between two statements that are not in one transaction."""
        return self._random.random() < 0.3

    def _draw(self) -> str:
        weather, chance = self.weather, self._random.random()
        for fault in ("lost request", "lost reply", "cut", "late"):
            chance -= getattr(weather, fault.replace(" ", "_"))
            if chance < 0:
                return fault
        return ""

    def cut_place(self) -> int:
        """Before or after which statement a connection breaks."""
        return self._random.randrange(6)

    def _in(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_in(seconds, call, *args, context=self.server.process.context)

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Inside the caller's transaction."""
        return enlist(connection, SqliteDialect(), self.clock).run(make())

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Inside the caller's transaction."""
        if isinstance(connection, _LentConnection):
            return await connection.loan.arun(make)
        return enlist(connection, SqliteDialect(), self.clock).run(make())

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """A transaction for a blocking function, over in no time."""
        if self.server.is_away or self.is_cut or self.server.transaction is not None:
            raise _gone("no transaction")
        loan = _Loan(self)
        try:
            yield loan
            loan.commit(self._draw())
        finally:
            loan.close()

    @asynccontextmanager
    async def atransaction(self) -> AsyncGenerator[Any]:
        """A transaction for the user's writes; everybody else waits for its end."""
        loan = await self._begin()
        try:
            yield loan
            await asyncio.sleep(self.delay())
            loan.commit(self._draw())
        finally:
            loan.close()

    async def _begin(self) -> _Loan:
        turn: asyncio.Future[_Loan] = self._loop.create_future()

        def take() -> None:
            if not turn.done() and self.process.is_alive:
                turn.set_result(_Loan(self))

        if self.server.is_away or self.is_cut or self._draw():
            await asyncio.sleep(self.delay())
            raise _gone("no transaction")
        self.server.when_free(take)
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                return await turn
        except TimeoutError:
            raise DatabaseBusy("another transaction is open") from None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Be notified of changes."""
        if self.server.is_away or self.is_cut:
            raise _gone("cannot listen")
        return self.server.listen(self, listener)

    def migrate(self) -> list[str]:
        """The server's tables are there."""
        return []

    def close(self) -> None:
        """There is nothing to close here."""

    async def aclose(self) -> None:
        """There is nothing to close here."""

    def _forget(self) -> None:
        """The process is gone: so is its transaction."""
        if self.server.holder is self:
            self.server.cut_transaction()


class _Call(Generic[T]):
    """One operation on its way, and the fault that waits for it."""

    def __init__(
        self, link: Link, make: Callable[[], Operation[T]], memory: dict[str, Any], fault: str, context: Context
    ) -> None:
        self._link = link
        self._server = link.server
        self.fault = fault
        self._place = link.cut_place() if fault == "cut" else -1
        self._context = context
        self._session = Session(link.server.real, link.server.connection)
        # Made when it is sent: what it says is what its process knew then, however late it arrives.
        self._steps = steps(make(), translate, link.clock, memory)
        self._next: Statement | None = None
        self.result: T | None = None
        self._done: list[Statement] = []
        self._writes = False
        self._is_open = False
        self._is_broken = False

    def proceed(self) -> bool:
        """Run it to its end, or to a place between two statements of which each is a transaction; True: it is over.

        It runs in the context of the process that sent it: what it reads of clocks are that process's.
        """
        if self._server.is_away or self._link.is_cut:
            self._is_broken = True
        done = len(self._done)
        try:
            return self._context.copy().run(self._proceed)
        finally:
            self._session.close()
            self._note_end(done)

    def _note_end(self, done: int) -> None:
        self._link.operations += done == 0
        names = " ".join(statement.name for statement in self._done[done:])
        self._server.history.add(self._link.process, names + (f" ({self.fault})" if self.fault else ""))
        self._server.observer.committed(self._link.process, self._done[done:])
        if self._writes:
            self._server.notify()

    def _proceed(self) -> bool:
        try:
            if self._next is None:
                self._next = next(self._steps)
            while True:
                try:
                    rows = self._execute(self._next)
                except Exception as error:  # noqa: BLE001  the steps decide what it means
                    self._next = self._steps.throw(error)
                else:
                    self._next = self._steps.send(rows)
                if not self._is_open and self._next is not ROLLBACK and self._link.pauses():
                    return False
        except StopIteration as stop:
            self.result = stop.value
            return True

    def _execute(self, statement: Statement) -> Sequence[Row]:
        if self._is_broken:
            raise _gone("the connection is gone")
        if self.fault == "cut" and len(self._done) == self._place:
            self._break("cut before this statement")
        if self.fault == "late" and self._done:
            self._break("the client is gone")
        before = self._server.connection.total_changes
        rows = self._session.execute(statement)
        self._note(statement, self._server.connection.total_changes > before)
        if self.fault == "lost reply" and self._is_committed(statement):
            self._break("the reply is lost")
        return rows

    def _note(self, statement: Statement, has_changed: bool) -> None:
        if statement is BEGIN or statement is COMMIT or statement is ROLLBACK:
            self._is_open = statement is BEGIN
            return
        self._done.append(statement)
        self._writes |= has_changed and statement.name not in QUIET

    def _is_committed(self, statement: Statement) -> bool:
        """Whether something was committed with it, which nobody learns now."""
        return statement is COMMIT or (not self._is_open and statement is not BEGIN and statement is not ROLLBACK)

    def _break(self, reason: str) -> None:
        self._is_broken = True
        raise _gone(reason)


class _SkewedClock:
    """The database's clock and a difference."""

    def __init__(self, server: Server, seconds: float) -> None:
        self._server = server
        self._difference = timedelta(seconds=seconds)

    def now(self) -> datetime:
        """What it shows."""
        return self._server.now() + self._difference


class _LentConnection:
    """The connection as a function sees it: once its transaction was cut off, it is of no use."""

    def __init__(self, loan: _Loan) -> None:
        self.loan = loan

    def execute(self, statement: str, params: Sequence[Any] = ()) -> Any:
        """Run a statement in the transaction."""
        return self.loan.execute(statement, params)


class _Loan:
    """A transaction lent to a function."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._server = link.server
        self._number = link.server.begin_transaction(link, LOAN_SECONDS)
        self.connection = _LentConnection(self)

    def run(self, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside it."""
        self.require_open()
        return enlist(self._server.connection, SqliteDialect(), self._link.clock).run(make())

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside it."""
        return self.run(make)

    def execute(self, statement: str, params: Sequence[Any]) -> Any:
        """Run a statement of the function's own inside it."""
        self.require_open()
        return self._server.connection.execute(statement, params)

    def commit(self, fault: str) -> None:
        """Commit; the connection may break before it or after it."""
        self.require_open()
        if fault and fault != "lost reply":
            self.close()
            raise _gone("cut before COMMIT")
        self._server.history.add(self._link.process, "transaction" + (f" ({fault})" if fault else ""))
        self._server.end_transaction("COMMIT", self._committed)
        if fault:
            raise _gone("the reply to COMMIT is lost")

    def _committed(self) -> None:
        self._server.observer.committed(self._link.process, ())
        self._server.notify()

    def close(self) -> None:
        """Undo what was not committed."""
        if self._server.transaction == self._number:
            self._server.end_transaction("ROLLBACK")

    def require_open(self) -> None:
        """Refuse what comes too late."""
        if self._server.transaction != self._number:
            raise _gone("the transaction was cut off")


def _gone(reason: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"simulated: {reason}")


def _fail(answer: asyncio.Future[Any], reason: str) -> None:
    _settle(answer, None, _gone(reason))


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
        answer.exception()  # who is cancelled in this very moment does not look at it
