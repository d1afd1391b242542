"""A global rate limit is exact while workers are killed: never exceeded in any second, and used while work waits.

What counts is when tasks were started by the clock of the database, noted by a trigger in the transaction of the claim.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence

import psycopg
import pytest

from tests.chaos.conftest import StartFleet
from tests.chaos.test_kills import kill_one
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import eventually

LONG = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(900)]
SIZES = [
    pytest.param(50.0, 60.0, 20, id="50 a second", marks=LONG),
    pytest.param(0.5, 60.0, 20, id="one in two seconds", marks=LONG),
]
PER_SERVICE = 2
USED = 0.95
KILL_EVERY = 2.0
"""Seconds between two kills if the rate is used up."""
PATIENCE = 120
NOTE_STARTS = """
CREATE TABLE chaos_starts (at timestamptz NOT NULL);
CREATE FUNCTION chaos_note_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %I.chaos_starts VALUES ($1)', TG_TABLE_SCHEMA) USING NEW.started_at;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_starts AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (OLD.state <> 'running' AND NEW.state = 'running') EXECUTE FUNCTION chaos_note_start();
"""


@pytest.mark.parametrize("rate, seconds, workers", SIZES)
@pytest.mark.backends("postgres-newest")
def test_killed_workers_never_exceed_a_rate_and_use_it(
    database_url: str,
    start_fleet: StartFleet,
    record_property: Callable[[str, object], None],
    rate: float,
    seconds: float,
    workers: int,
):
    fleet, queue = start_fleet(database_url)
    with psycopg.connect(libpq_url(database_url), autocommit=True) as raw:
        raw.execute(NOTE_STARTS)
        queue.set_rate_limit(rate, "nap")
        services = workers // PER_SERVICE
        for _ in range(services):
            fleet.start("--concurrency", "4", "--grace", "5", processes=PER_SERVICE, wait=False)
        for service in fleet.services:
            fleet.wait_working(service, PER_SERVICE)
        count = int(rate * seconds * 2) + 100
        queue.submit_new([queue.new_by_name("nap", {"seconds": 0.005}, max_attempts=9) for _ in range(count)])
        chance, enough = random.Random(workers), rate * seconds
        between_kills = min(KILL_EVERY, seconds / 3) * rate
        while (begun := len(starts(raw))) < enough:
            more = min(begun + between_kills, enough)
            eventually(lambda more=more: len(starts(raw)) >= more, PATIENCE)
            kill_one(fleet, chance, {"worker": 1})
            gone = sum(service.process.poll() is not None for service in fleet.services)
            for _ in range(services + gone - len(fleet.services)):
                fleet.start("--concurrency", "4", "--grace", "5", processes=PER_SERVICE, wait=False)
        moments = starts(raw)
    burst = max(1.0, rate)
    # A start one second after another is not in the same second: the window is open at its end.
    most = max(in_window(moments, number, 1.0) for number in range(len(moments)))
    used = in_window(moments, 0, seconds)
    told = f"{rate}/s over {seconds} s, {workers} workers: at most {most} in a second"
    record_property("figures", f"{told}, {used} of {rate * seconds:g} used")
    assert most <= rate + burst
    if seconds >= 60:
        assert used >= USED * rate * seconds


def starts(raw: psycopg.Connection) -> list[float]:
    rows = raw.execute("SELECT extract(epoch FROM at)::float8 FROM chaos_starts ORDER BY at").fetchall()
    return [moment for (moment,) in rows]


def in_window(moments: Sequence[float], first: int, seconds: float) -> int:
    """How many starts there are from one on, within so many seconds."""
    return bisect_left(moments, moments[first] + seconds) - first
