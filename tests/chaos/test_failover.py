"""The primary dies under load and its standby takes over: through one URL everything goes on, and nothing is lost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import psycopg
import pytest

from tasklib import TaskQueue
from tasklib.errors import DatabaseUnavailable
from tests.chaos.conftest import StartFleet
from tests.chaos.fleet import Fleet
from tests.chaos.ledger import duplicates
from tests.fixtures.waiting import eventually
from tools.postgres import available
from tools.postgres.pair import Pair

RecordProperty = Callable[[str, object], None]
Change = Literal["killed", "stopped"]


@dataclass(frozen=True)
class Size:
    between: int
    """Tasks run between two changes of the primary."""
    changes: tuple[Change, ...]
    """How each primary ends: killed with all its processes, or stopped in order, as for a restart."""
    processes: int = 1


SIZES = [
    pytest.param(Size(between=40, changes=("killed",)), id="short"),
    pytest.param(
        Size(between=300, changes=("killed", "killed", "stopped", "killed") * 5, processes=2),
        id="long",
        marks=[pytest.mark.chaos, pytest.mark.timeout(1800)],
    ),
]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(available()[0]) as running:
        yield running


@pytest.fixture
def late_pair() -> Iterator[Pair]:
    """The standby receives commits after they were acknowledged."""
    with Pair(available()[0], synchronous=False) as running:
        yield running


@pytest.mark.parametrize("size", SIZES)
def test_a_synchronous_standby_that_takes_over_has_everything_acknowledged(
    pair: Pair, start_fleet: StartFleet, size: Size, record_property: RecordProperty
):
    # Retries are not so soon that an outage uses them up.
    fleet, queue = start_fleet(pair.url, base_retry_delay_seconds=1.0)
    service = fleet.start("--concurrency", "8", processes=size.processes)
    workers = service.workers()
    producer = fleet.produce(queue, 1_000_000, backlog=200)

    resumed: list[float] = []
    for number, change in enumerate(size.changes):
        if number:
            pair.rejoin()
        seen, had = fleet.ledger.count(), len(producer.acknowledged)
        eventually(lambda seen=seen: fleet.ledger.count() > seen + size.between)
        gone = time.monotonic()
        pair.fail_over() if change == "killed" else pair.switch_over()
        promoted = time.monotonic()
        eventually(lambda at=promoted: any(entry.moment > at for entry in fleet.ledger.starts()))
        resumed.append(time.monotonic() - gone)
        eventually(lambda had=had: len(producer.acknowledged) > had)
    producer.stop()
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0)

    record_property("figures", spread("changes of the primary", resumed))
    assert service.workers() == workers, "a worker process did not survive"
    assert set(producer.acknowledged) <= set(fleet.history.completions())
    assert queue.count() == queue.count(state="completed"), queue.stats()
    fleet.stop()


def test_an_idle_worker_listens_to_the_new_primary(pair: Pair, start_fleet: StartFleet):
    fleet, queue = start_fleet(pair.url)
    # Between two polls nothing but a notification makes it look.
    service = fleet.start("--concurrency", "1", "--poll-interval", "3600")
    run_by_the_idle_worker(pair, fleet, queue)
    refuses_writes(pair)
    pair.fail_over()
    eventually(lambda: "listening for notifications again" in service.log)
    for _ in range(3):
        run_by_the_idle_worker(pair, fleet, queue)
    fleet.stop()


@pytest.mark.chaos
def test_an_asynchronous_standby_lacks_what_had_not_reached_it_and_nothing_else(
    late_pair: Pair, start_fleet: StartFleet
):
    fleet, queue = start_fleet(late_pair.url, base_retry_delay_seconds=1.0, lock_timeout_seconds=5)
    fleet.history.is_judged = False  # what the standby lacks, it cannot tell
    audit = fleet.history
    service = fleet.start("--concurrency", "8")
    workers = service.workers()
    kept = [queue.enqueue("quick") for _ in range(20)]
    again = queue.enqueue("gated")
    eventually(lambda: fleet.ledger.starts_of(again) and set(kept) <= set(audit.completions()))
    late_pair.wait_in_step()
    late_pair.cut_off_standby()
    # Acknowledged by the primary alone: the row of one task, and the completion of another.
    lost = queue.enqueue("quick")
    fleet.open_gate()
    eventually(lambda: {lost, again} <= set(audit.completions()))
    late_pair.fail_over()

    assert queue.get(lost) is None
    # Its worker has finished it and renews its lease no more, so the row is free when that has run out.
    eventually(lambda: len(fleet.ledger.starts_of(again)) == 2)
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0)
    assert service.workers() == workers
    assert set(audit.completions()) == {*kept, again}
    assert duplicates(audit.completions()) == []
    fleet.stop()


def spread(what: str, seconds: list[float]) -> str:
    """How long each of many things took, as figures for a person."""
    figures = {"least": min(seconds), "median": statistics.median(seconds), "most": max(seconds)}
    told = ", ".join(f"{name} {figure:.2f} s" for name, figure in figures.items())
    return f"{len(seconds)} {what}, work resumed after: {told} ({' '.join(f'{each:.2f}' for each in seconds)})"


def run_by_the_idle_worker(pair: Pair, fleet: Fleet, queue: TaskQueue) -> None:
    """Submit a task once the worker has asked for notifications.

    A commit that waits for the standby while the worker asks is seen by neither: that costs a poll interval.
    """
    with psycopg.connect(pair.url, autocommit=True) as connection:
        idle = "SELECT EXISTS (SELECT FROM tasklib_idle WHERE until > now())"
        eventually(lambda: connection.execute(idle).fetchone() == (True,))
    task_id = queue.enqueue("quick")
    eventually(lambda: fleet.ledger.starts_of(task_id))


def refuses_writes(pair: Pair) -> None:
    """A standby reached by mistake is no error of the caller's: it may be the primary soon, or another address be."""
    assert pair.standby is not None
    with TaskQueue(pair.standby.url) as mistaken:
        assert mistaken.count() == 1
        with pytest.raises(DatabaseUnavailable, match="target_session_attrs=read-write"):
            mistaken.enqueue("quick")
