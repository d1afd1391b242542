"""What is paused does not start, and no more starts or runs at once than limits allow: checked at each claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasklib.storage.statement import Statement
from tests.simulation.rows import Row
from tests.simulation.truth import Execution

if TYPE_CHECKING:
    from tests.simulation.checks import Checker

TOLERANCE = 0.05
"""Of a token: database and simulator count the same seconds with different roundings."""
CHANGES_OF_RATES = frozenset({"set_rate", "declare_limits"})
USUAL_OF_KEY = 1
"""How many tasks of a concurrency key run at once, if nobody says more."""


@dataclass(slots=True)
class _Bucket:
    """Our own count of what a rate still allows; it is full after each step of the database's clock."""

    rate: float | None
    burst: float | None
    declared: str | None
    tokens: float
    then: float
    steps: int

    @property
    def holds(self) -> float:
        return self.burst or max(1.0, self.rate or 0.0)

    def refill(self, now: float, steps: int) -> None:
        filled = self.tokens + (now - self.then) * (self.rate or 0.0)
        self.tokens = self.holds if steps != self.steps else min(self.holds, filled)
        self.then, self.steps = now, steps


@dataclass(slots=True)
class LimitChecker:
    """Compares each claim with the limits that hold in that moment."""

    checker: Checker
    grace_seconds: float
    """How long a process that was frozen may need to notice that it is late."""
    buckets: dict[str, _Bucket] = field(default_factory=dict)

    def committed(self, statements: Sequence[Statement]) -> None:
        """After every operation: rates may be others now."""
        if CHANGES_OF_RATES.isdisjoint(each.name for each in statements):
            return
        now, steps = self._moment
        found = self._ask("SELECT name, rate, burst, declared FROM tasklib_controls")
        for name, rate, burst, declared in found:
            known = self.buckets.get(name)
            if known is not None and (known.rate, known.burst, known.declared) == (rate, burst, declared):
                continue
            made = _Bucket(rate, burst, declared, 0.0, now, steps)
            made.tokens = made.holds
            if known is not None and known.rate is not None and known.declared == declared:
                known.refill(now, steps)  # what is in a bucket stays, as far as the new one holds it
                made.tokens = min(made.holds, known.tokens)
            self.buckets[name] = made

    def claimed(self, new: Row, what: str) -> None:
        """A task was claimed just now."""
        for name in ("", new.name):
            self._check_rate(name, what)
        for name, paused, most in self._ask(
            "SELECT name, paused_at, max_running FROM tasklib_controls WHERE name IN ('', ?)", new.name
        ):
            if paused is not None:
                self.checker.broken(f"{what} was claimed while {name or 'everything'} is paused")
            if most is not None:
                self._check_number(most, name or "all", what, lambda other, _, name=name: name in ("", other))
        if new.concurrency_key is not None:
            self._check_key(new, new.concurrency_key, what)

    def _check_rate(self, name: str, what: str) -> None:
        bucket = self.buckets.get(name)
        if bucket is None or bucket.rate is None:
            return
        bucket.refill(*self._moment)
        if bucket.tokens < 1 - TOLERANCE:
            self.checker.broken(
                f"{what} was claimed although the rate of {name or 'all'} allows {bucket.tokens:.2f} now"
            )
        bucket.tokens -= 1

    def _check_key(self, new: Row, key: str, what: str) -> None:
        limits = {(name, of): most for name, of, most in self._ask("SELECT * FROM tasklib_key_limits")}
        own = {name for name, of in limits if name and of in (key, "")}
        """Names that are counted by themselves."""
        places = [(new.name, key), (new.name, ""), ("", key), ("", "")]
        most = next((limits[place] for place in places if place in limits), USUAL_OF_KEY)
        if not most:
            return

        def counts(name: str, of: str | None) -> bool:
            return of == key and (name == new.name if new.name in own else name not in own)

        self._check_number(most, f"the key {key}", what, counts)

    def _check_number(self, most: int, of: str, what: str, counts: Callable[[str, str | None], bool]) -> None:
        """What runs is what the table says, and what really runs and should have ended."""
        held = {
            (row.id, row.version)
            for row in self.checker.rows.values()
            if row.state == "running" and counts(row.name, row.concurrency_key)
        }
        held |= {
            (each.task_id, each.version)
            for each in self.checker.truth.running()
            if counts(each.name, each.key) and self._should_have_ended(each)
        }
        if len(held) > most:
            self.checker.broken(f"{what} was claimed although {most} of {of} run already")

    def _should_have_ended(self, execution: Execution) -> bool:
        """Whether nothing has kept it from ending when its claim did."""
        return execution.can_be_stopped and execution.process.has_run_for(self.grace_seconds)

    @property
    def _moment(self) -> tuple[float, int]:
        assert self.checker.server is not None
        return self.checker.truth.loop.now, self.checker.server.clock_steps

    def _ask(self, query: str, *values: str) -> list[tuple]:
        assert self.checker.server is not None
        return self.checker.server.connection.execute(query, values).fetchall()
