"""Heartbeats: by a worker itself, by its supervisor, and by whichever of the two is left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib import Config
from tasklib.errors import DatabaseUnavailable
from tasklib.worker.execution.running_table import RunningTable
from tasklib.worker.supervisor.channel import Channel
from tasklib.worker.supervisor.heartbeat_proxy import HeartbeatProxy
from tasklib.worker.supervisor.proxied_heartbeat import ProxiedHeartbeat, SupervisorClient
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tests.fixtures.waiting import eventually

TIMEOUT = 0.4
INTERVAL = 0.1
VITALS = {"memory_bytes": 81_920, "stuck_threads": 2}


class BeatenDatabase:
    """Counts the beats that reach it, and answers them as the test likes."""

    def __init__(self) -> None:
        self.beats = 0
        self.told: Any = None
        self.is_away = False
        self.knows = True

    def run(self, make: Callable[[], Any], *, repeatable: bool = True) -> bool:
        if self.is_away:
            raise DatabaseUnavailable("gone")
        self.told = json.loads(next(make()).params["info"])
        self.beats += 1
        return self.knows


class OneDatabase:
    """Knows where every worker process keeps its tasks."""

    def __init__(self, database: BeatenDatabase) -> None:
        self._database = database

    def of(self, introduction: dict[str, Any]) -> tuple[Config, BeatenDatabase]:
        return Config("sqlite://", heartbeat_interval_seconds=INTERVAL), self._database


@pytest.fixture
def database() -> BeatenDatabase:
    return BeatenDatabase()


@pytest.fixture
def deaths() -> list[str]:
    return []


class Owner:
    """Whose heartbeat it is."""

    def __init__(self, deaths: list[str]) -> None:
        self._deaths = deaths

    def worker_info(self) -> dict[str, Any]:
        return VITALS

    def declared_dead(self) -> None:
        self._deaths.append("dead")


CONFIG = Config(database_url="sqlite://", heartbeat_interval_seconds=INTERVAL, worker_timeout_seconds=TIMEOUT)


@pytest.fixture
def owner(deaths: list[str]) -> Owner:
    return Owner(deaths)


@pytest.fixture
def heartbeat(database: BeatenDatabase, owner: Owner) -> Iterator[Heartbeat]:
    beating = Heartbeat(database, CONFIG, uuid4(), owner)  # type: ignore[arg-type]
    beating.start()
    yield beating
    beating.stop()


class WorkingProcess:
    is_working = True


class Supervised:
    """A proxied heartbeat, and the supervisor's end of its channel."""

    def __init__(self, database: BeatenDatabase, owner: Owner) -> None:
        self.channel, theirs = Channel.pair()
        self.theirs = Channel(theirs, RunningTable.create())
        self.orphans = 0
        self.instance = uuid4()
        self.stops: list[bool] = []
        supervisor = SupervisorClient(self.theirs, self)
        self.heartbeat = ProxiedHeartbeat(
            supervisor,
            database,  # type: ignore[arg-type]
            CONFIG,
            self.instance,
            owner,
        )

    def stop(self, *, now: bool) -> None:
        self.stops.append(now)

    def orphaned(self) -> None:
        self.orphans += 1

    def beat(self, *, known: bool = True, instance: UUID | None = None, ago: float = 0.0) -> None:
        moment = time.monotonic() - ago
        self.channel.send("beat", instance=str(instance or self.instance), asked=moment, known=known, since=0.0)


@pytest.fixture
def supervised(database: BeatenDatabase, owner: Owner) -> Iterator[Supervised]:
    started = Supervised(database, owner)
    started.heartbeat.start()
    yield started
    started.heartbeat.stop()
    started.theirs.close()
    if not started.channel.is_closed:
        started.channel.close()


def test_every_beat_tells_how_the_instance_is(heartbeat: Heartbeat, database: BeatenDatabase):
    eventually(lambda: database.beats)
    assert database.told == VITALS


def test_a_supervisor_beats_with_what_its_process_said_last(database: BeatenDatabase):
    ours, theirs = Channel.pair()
    proxy = HeartbeatProxy(ours, OneDatabase(database), WorkingProcess())  # type: ignore[arg-type]
    proxy.receive({"kind": "hello", "lease": 30, "config": {}})
    proxy.receive({"kind": "tick", "instance": str(uuid4()), "worker_info": VITALS})
    try:
        eventually(lambda: database.beats)
        assert database.told == VITALS
    finally:
        proxy.stop()
        ours.close()
        theirs.close()


def test_a_heartbeat_is_steady_after_one_full_timeout(heartbeat: Heartbeat):
    assert not heartbeat.is_steady
    eventually(lambda: heartbeat.is_steady)
    assert heartbeat.silence < 1


def test_after_an_outage_a_heartbeat_must_hold_for_a_full_timeout_again(heartbeat: Heartbeat, database: BeatenDatabase):
    eventually(lambda: heartbeat.is_steady)
    database.is_away = True
    eventually(lambda: heartbeat.silence > 1)
    database.is_away = False
    eventually(lambda: heartbeat.silence < 1)
    back = time.monotonic()

    assert not heartbeat.is_steady
    eventually(lambda: heartbeat.is_steady)
    assert time.monotonic() - back > TIMEOUT - 2 * INTERVAL


def test_an_instance_that_was_declared_dead_is_told_once_and_beats_no_more(
    heartbeat: Heartbeat, database: BeatenDatabase, deaths: list[str]
):
    database.knows = False
    eventually(lambda: deaths)
    beats = database.beats
    eventually(lambda: heartbeat.silence > 1)
    assert (deaths, database.beats) == (["dead"], beats)


def test_an_error_nobody_foresaw_does_not_end_the_heartbeat(
    heartbeat: Heartbeat, database: BeatenDatabase, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(database, "run", fail)
    beats = database.beats
    eventually(lambda: database.beats > beats)


def test_while_the_supervisor_beats_the_worker_does_not(supervised: Supervised, database: BeatenDatabase):
    def beat_on() -> bool:
        supervised.beat()
        return supervised.heartbeat.is_steady

    eventually(beat_on)
    assert database.beats == 0


def test_when_the_supervisor_falls_silent_the_worker_beats_in_time(supervised: Supervised, database: BeatenDatabase):
    highest = 0.0

    def beaten() -> bool:
        nonlocal highest
        highest = max(highest, supervised.heartbeat.silence)
        return database.beats > 2

    eventually(beaten)
    assert highest < 1


def test_beats_that_came_while_nobody_listened_count_from_when_they_were_sent(supervised: Supervised):
    # As after a long call that held the interpreter: the beats wait in the socket.
    supervised.heartbeat._stopped.set()
    eventually(lambda: time.monotonic() - supervised.heartbeat._last > TIMEOUT)
    supervised.beat(ago=INTERVAL)

    assert INTERVAL / TIMEOUT <= supervised.heartbeat.silence < 0.9


def test_beats_for_an_instance_of_the_past_do_not_count(supervised: Supervised):
    supervised.heartbeat._stopped.set()
    eventually(lambda: time.monotonic() - supervised.heartbeat._last > TIMEOUT)
    supervised.beat(instance=uuid4())

    assert supervised.heartbeat.silence > 1


def test_the_supervisor_passes_on_that_the_instance_was_declared_dead(supervised: Supervised, deaths: list[str]):
    supervised.beat(known=False)
    eventually(lambda: deaths)
    assert deaths == ["dead"]


def test_a_worker_whose_supervisor_is_gone_knows_it_and_beats_itself(supervised: Supervised, database: BeatenDatabase):
    supervised.channel.close()
    eventually(lambda: database.beats > 3)
    assert supervised.orphans == 1


def test_the_supervisor_says_when_to_stop_and_when_to_hurry(supervised: Supervised):
    supervised.channel.send("stop", now=False)
    supervised.channel.send("stop", now=True)
    eventually(lambda: supervised.stops == [False, True])


def test_the_supervisor_is_told_as_whom_the_worker_lives(supervised: Supervised):
    def said() -> list[Any]:
        return [(message["instance"], message["worker_info"]) for message in supervised.channel.receive()]

    assert said() == [(str(supervised.instance), VITALS)]
    supervised.heartbeat.stop()
    assert said() == [(None, None)]


def test_nobody_waits_for_the_other_end_of_a_line_and_no_line_is_torn():
    ours, socket = Channel.pair()
    theirs = Channel(socket, RunningTable.create())
    for number in range(5_000):
        ours.send("tick", number=number, padding="x" * 100)

    heard = [message["number"] for message in theirs.receive()]
    ours.send("tick", number=-1)

    assert heard == list(range(len(heard)))
    assert 0 < len(heard) < 5_000
    # The rest of the line that was cut off comes first, and then what was said last.
    assert [message["number"] for message in theirs.receive()][-1] == -1
    theirs.close()
    ours.close()
