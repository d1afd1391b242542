"""The database of a simulation: a real SQLite in memory with a clock of its own, away now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tasklib.core.config import Config
from tasklib.storage.database import Listener
from tasklib.storage.sqlite.database import SqliteDatabase
from tasklib.storage.statement import Statement
from tests.simulation.history import START, History
from tests.simulation.loop import Process, VirtualLoop

EPOCH = datetime(2030, 1, 7, tzinfo=UTC)
"""What the database's clock shows when a run starts: a Monday at midnight."""
LONGEST_OPERATION_SECONDS = 3.0
"""From the first statement of an operation, whose time all of its statements have, to the last."""


class Client(Protocol):
    """A process's side of its connections."""

    process: Process

    def delay(self) -> float:
        """How long a message takes now."""
        ...

    def loses_notice(self) -> bool:
        """Whether the next notification does not arrive."""
        ...


class Observer(Protocol):
    """Who looks at the tables after every operation."""

    def committed(self, process: Process, statements: Sequence[Statement]) -> None:
        """An operation of these statements has run for a process."""


class Server:
    """The database and its clock."""

    def __init__(self, loop: VirtualLoop, history: History, observer: Observer) -> None:
        self.loop = loop
        self.history = history
        self.observer = observer
        self.process = Process(loop, "database")
        self.real = SqliteDatabase(Config(database_url="sqlite:///:memory:"), self)
        self.real.migrate()
        self.connection = self.real._opened()
        self.clock_offset = self._latest_offset = 0.0
        self.clock_steps = 0
        self._before_step = (0.0, 0.0)
        """When its clock was set last, and by how much it had differed until then."""
        self.is_away = False
        self.outages: list[tuple[float, float]] = []
        """When it was away, and when it came back."""
        self._away_since = 0.0
        self.holder: Client | None = None
        self.transaction: int | None = None
        """Whose transaction is open, and its number: there is one writer."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._listeners: dict[int, tuple[Client, Listener]] = {}
        self._numbers = 0

    def now(self) -> datetime:
        """What its clock shows."""
        return EPOCH + timedelta(seconds=round(self.loop.now - START + self.clock_offset, 3))

    def latest_now(self) -> datetime:
        """The latest time that an operation may have read which ends now: its clock may have been set meanwhile."""
        stepped, offset = self._before_step
        recent = self.loop.now - stepped < LONGEST_OPERATION_SECONDS
        return self.now() + timedelta(seconds=max(0.0, offset - self.clock_offset) if recent else 0.0)

    def go_away(self) -> None:
        """Answer nobody; every connection is cut."""
        if not self.is_away:
            self.is_away, self._away_since = True, self.loop.now
        self.cut_transaction()

    def come_back(self) -> None:
        """Answer again."""
        self.is_away = False
        self.outages.append((self._away_since, self.loop.now))

    def step_clock(self, seconds: float) -> None:
        """Its clock shows another time from now on."""
        self._before_step = self.loop.now, self.clock_offset
        self.clock_offset += seconds
        self.clock_steps += 1
        self._latest_offset = max(self._latest_offset, self.clock_offset)

    def correct_clock(self) -> None:
        """Show no time any more before which it has been: what is due then would wait for it."""
        if self.clock_offset != self._latest_offset:
            self.step_clock(self._latest_offset - self.clock_offset)

    def listen(self, link: Client, listener: Listener) -> Callable[[], None]:
        """Notify the link's process of changes until the function returned is called."""
        self._numbers += 1
        number = self._numbers
        self._listeners[number] = link, listener

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def notify(self) -> None:
        """Tell every listener that something has changed; each notice may be late or lost."""
        for link, listener in list(self._listeners.values()):
            if link.process.is_alive and not link.loses_notice():
                self.loop.call_in(link.delay(), listener, "changed", context=link.process.context.copy())

    def when_free(self, call: Callable[[], None]) -> None:
        """Call when no transaction is open."""
        if self.transaction is None:
            call()
        else:
            self._waiting.append(call)

    def begin_transaction(self, link: Client, seconds: float) -> int:
        """Give the only writer to a link, for so long at most; returns the number of the transaction."""
        self._numbers += 1
        self.holder, self.transaction = link, self._numbers
        self.connection.execute("BEGIN IMMEDIATE")
        self.loop.call_in(seconds, self._expire, self._numbers, context=self.process.context)
        return self._numbers

    def end_transaction(self, how: str, then: Callable[[], None] | None = None) -> None:
        """COMMIT or ROLLBACK, do what belongs to it, and let those that wait go on."""
        self.connection.execute(how)
        self.holder = self.transaction = None
        if then is not None:
            then()
        while self._waiting and self.transaction is None:
            self._waiting.popleft()()

    def cut_transaction(self) -> None:
        """Undo the open transaction: its holder is gone, or all connections are."""
        if self.transaction is not None:
            self.end_transaction("ROLLBACK")

    def _expire(self, number: int) -> None:
        if self.transaction == number:
            self.end_transaction("ROLLBACK")
