"""What a driver sends for an operation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasklib import ConfigurationError, ManualClock
from tasklib.core.time.clock import DatabaseClock
from tasklib.storage.run import run_blocking, steps
from tasklib.storage.statement import BEGIN, COMMIT, ROLLBACK, Operation, Row, Statement

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Driver:
    """Answers every statement with one row, and remembers it; it fails the ones named."""

    def __init__(self, *failing: str) -> None:
        self.sent: list[Statement] = []
        self._failing = failing

    def execute(self, statement: Statement) -> Sequence[Row]:
        self.sent.append(statement)
        if statement.name in self._failing:
            raise OSError(statement.name)
        return ({"name": statement.name},)

    def run(self, operation: Operation[Any], clock: Any = None) -> Any:
        return run_blocking(steps(operation, lambda error: error, clock or DatabaseClock()), self.execute)


def transfer() -> Operation[str]:
    yield BEGIN
    yield Statement("take", {"id": 1})
    return str((yield Statement("give"))[0]["name"])


def test_all_statements_of_an_operation_have_the_same_now() -> None:
    clock, driver = ManualClock(NOON), Driver()

    def moving() -> Operation[None]:
        yield Statement("first")
        clock.advance(60)
        yield Statement("second")

    driver.run(moving(), clock)
    assert [each.params["now"] for each in driver.sent] == [NOON, NOON]


def test_a_transaction_goes_by_the_time_at_which_it_began_however_long_it_waited_for_that() -> None:
    clock = ManualClock(NOON)

    class Waiting(Driver):
        def execute(self, statement: Statement) -> Sequence[Row]:
            if statement is BEGIN:
                clock.advance(5)
            return super().execute(statement)

    driver = Waiting()
    driver.run(transfer(), clock)
    assert {each.params["now"] for each in driver.sent if each.params} == {NOON + timedelta(seconds=5)}


def test_without_a_clock_of_its_own_the_database_decides_what_time_it_is() -> None:
    driver = Driver()
    assert driver.run(transfer()) == "give"
    assert driver.sent == [BEGIN, Statement("take", {"id": 1, "now": None}), Statement("give", {"now": None}), COMMIT]


def test_a_failure_undoes_the_transaction() -> None:
    driver = Driver("give")
    with pytest.raises(OSError, match="give"):
        driver.run(transfer())
    assert driver.sent[-1] is ROLLBACK


def test_an_operation_runs_up_to_its_first_statement_before_it_is_sent_anywhere() -> None:
    def wrong() -> Operation[None]:
        if True:
            raise ConfigurationError("no")
        yield BEGIN

    with pytest.raises(ConfigurationError):
        steps(wrong(), lambda error: error, DatabaseClock())


def test_an_operation_without_statements_sends_none() -> None:
    def nothing() -> Operation[int]:
        yield from ()
        return 7

    driver = Driver()
    assert (driver.run(nothing()), driver.sent) == (7, [])
