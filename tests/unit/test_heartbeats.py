"""Heartbeats: by a worker itself, by its supervisor, and by whichever of the two is left."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib import Config
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.errors import DatabaseUnavailable
from tasklib.worker.execution.running_table import RunningTable
from tasklib.worker.supervisor.channel import SupervisorChannel
from tasklib.worker.supervisor.worker_main import ProxiedHeartbeat, SupervisorClient
from tasklib.worker.supervisor.worker_process import HeartbeatProxy
from tasklib.worker.upkeep.heartbeat import FAILING_SECONDS, Heartbeat
from tests.fixtures.virtual import on_virtual_time

TIMEOUT = 30.0
INTERVAL = 10.0
VITALS = {"memory_bytes": 81_920, "stuck_threads": 2}
CONFIG = Config(database_url="sqlite://", heartbeat_interval_seconds=INTERVAL, worker_timeout_seconds=TIMEOUT)


class BeatenDatabase:
    """Notes when beats reach it, and answers them as the test likes."""

    def __init__(self, timing: VirtualTiming) -> None:
        self._timing = timing
        self.beats: list[float] = []
        self.told: Any = None
        self.error: Exception | None = None
        self.knows = True

    async def arun(self, make: Callable[[], Any]) -> bool:
        if self.error is not None:
            raise self.error
        self.told = json.loads(next(make()).params["info"])
        self.beats.append(self._timing.monotonic())
        return self.knows


class Owner:
    """Whose heartbeat it is."""

    def __init__(self) -> None:
        self.deaths = 0

    def worker_info(self) -> dict[str, Any]:
        return VITALS

    def declared_dead(self) -> None:
        self.deaths += 1


@pytest.fixture
def database(timing: VirtualTiming) -> BeatenDatabase:
    return BeatenDatabase(timing)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def heartbeat(database: BeatenDatabase, timing: VirtualTiming, owner: Owner) -> Heartbeat:
    return Heartbeat(database, timing, CONFIG, uuid4(), owner)  # type: ignore[arg-type]


class WorkingProcess:
    is_working = True


class Client(SupervisorClient):
    """Notes what the supervisor asks for."""

    def __init__(self, channel: SupervisorChannel) -> None:
        super().__init__(channel)
        self.orphans = 0
        self.stops: list[bool] = []

    def stop(self, *, now: bool) -> None:
        self.stops.append(now)

    def end_orphaned(self) -> None:
        self.orphans += 1


class Supervised:
    """A proxied heartbeat, and the supervisor's end of its channel."""

    def __init__(self, database: BeatenDatabase, timing: VirtualTiming, owner: Owner) -> None:
        self._timing = timing
        self.channel, theirs = SupervisorChannel.pair()
        self.theirs = SupervisorChannel(theirs, RunningTable.create())
        self.instance = uuid4()
        self.supervisor = Client(self.theirs)
        self.heartbeat = ProxiedHeartbeat(
            self.supervisor,
            database,  # type: ignore[arg-type]
            timing,
            CONFIG,
            self.instance,
            owner,
        )

    def beat(self, *, known: bool = True, instance: UUID | None = None, ago: float = 0.0) -> None:
        moment = self._timing.monotonic() - ago
        self.channel.notify("beat", instance=str(instance or self.instance), asked=moment, known=known, since=0.0)


@pytest.fixture
def supervised(database: BeatenDatabase, timing: VirtualTiming, owner: Owner) -> Iterator[Supervised]:
    made = Supervised(database, timing, owner)
    yield made
    made.theirs.close()
    if not made.channel.is_closed:
        made.channel.close()


@on_virtual_time
async def test_beats_come_at_their_interval_and_tell_how_the_instance_is(
    timing: VirtualTiming, heartbeat: Heartbeat, database: BeatenDatabase
):
    heartbeat.start()
    await asyncio.sleep(3 * INTERVAL + 1)
    await heartbeat.stop()
    await asyncio.sleep(INTERVAL)

    assert database.beats == [INTERVAL, 2 * INTERVAL, 3 * INTERVAL]
    assert database.told == VITALS


@on_virtual_time
async def test_a_supervisor_beats_with_what_its_process_said_last(timing: VirtualTiming, database: BeatenDatabase):
    ours, theirs = SupervisorChannel.pair()
    proxy = HeartbeatProxy(ours, {CONFIG: database}, WorkingProcess(), timing)  # type: ignore[arg-type]
    proxy.receive({"kind": "hello", "lease": 30, "config": dataclasses.asdict(CONFIG)})
    proxy.receive({"kind": "tick", "instance": str(uuid4()), "worker_info": VITALS, "beaten": None})
    await asyncio.sleep(INTERVAL + 1)
    proxy.stop()
    ours.close()
    theirs.close()

    assert (database.beats, database.told) == ([INTERVAL], VITALS)


@on_virtual_time
async def test_a_beat_that_an_idle_process_has_sent_itself_puts_off_the_supervisors(
    timing: VirtualTiming, database: BeatenDatabase, owner: Owner, supervised: Supervised
):
    proxy = HeartbeatProxy(supervised.channel, {CONFIG: database}, WorkingProcess(), timing)  # type: ignore[arg-type]
    proxy.receive({"kind": "hello", "lease": 300, "config": dataclasses.asdict(CONFIG)})
    supervised.supervisor.register_as(supervised.instance, owner)
    for act in (lambda: None, lambda: supervised.heartbeat.came_with_poll(timing.monotonic(), known=True)):
        act()
        for message in supervised.channel.receive():
            proxy.receive(message)
        await asyncio.sleep(INTERVAL - 2)
    await asyncio.sleep(3)
    proxy.stop()

    assert database.beats == [2 * INTERVAL - 2]


@on_virtual_time
async def test_a_supervisor_sends_no_beats_for_a_process_that_is_paused(
    timing: VirtualTiming, database: BeatenDatabase
):
    ours, theirs = SupervisorChannel.pair()
    process = WorkingProcess()
    proxy = HeartbeatProxy(ours, {CONFIG: database}, process, timing)  # type: ignore[arg-type]
    proxy.receive({"kind": "hello", "lease": 300, "config": dataclasses.asdict(CONFIG)})
    proxy.receive({"kind": "tick", "instance": str(uuid4()), "worker_info": VITALS, "beaten": None})
    process.is_working = False
    await asyncio.sleep(3.5 * INTERVAL)
    process.is_working = True
    await asyncio.sleep(INTERVAL)
    proxy.stop()
    ours.close()
    theirs.close()

    assert database.beats == [4 * INTERVAL]


@on_virtual_time
async def test_a_heartbeat_is_steady_after_one_full_timeout(timing: VirtualTiming, heartbeat: Heartbeat):
    heartbeat.start()
    await asyncio.sleep(TIMEOUT - 1)
    assert not heartbeat.is_steady
    await asyncio.sleep(1)
    assert heartbeat.is_steady
    await heartbeat.stop()


@on_virtual_time
async def test_after_an_outage_a_heartbeat_must_hold_for_a_full_timeout_again(
    timing: VirtualTiming, heartbeat: Heartbeat, database: BeatenDatabase
):
    heartbeat.start()
    await asyncio.sleep(TIMEOUT + 0.5)
    database.error = DatabaseUnavailable("gone")
    await asyncio.sleep(TIMEOUT)
    assert heartbeat.silence > 1
    database.error = None
    await asyncio.sleep(FAILING_SECONDS)

    # It tries every second while it fails, and the first beat that arrives starts the measurement.
    assert database.beats == [10, 20, 30, 61]
    await asyncio.sleep(61 + TIMEOUT - timing.monotonic() - 0.001)
    assert not heartbeat.is_steady
    await asyncio.sleep(0.001)
    assert heartbeat.is_steady
    await heartbeat.stop()


@on_virtual_time
async def test_an_instance_that_was_declared_dead_is_told_once_and_beats_no_more(
    timing: VirtualTiming, heartbeat: Heartbeat, database: BeatenDatabase, owner: Owner
):
    database.knows = False
    heartbeat.start()
    await asyncio.sleep(5 * TIMEOUT)

    assert (owner.deaths, database.beats) == (1, [INTERVAL])


@on_virtual_time
async def test_an_error_nobody_foresaw_does_not_end_the_heartbeat(
    timing: VirtualTiming, heartbeat: Heartbeat, database: BeatenDatabase
):
    database.error = RuntimeError("nobody foresaw this")
    heartbeat.start()
    await asyncio.sleep(INTERVAL + 0.1)
    database.error = None
    await asyncio.sleep(FAILING_SECONDS)

    assert database.beats == [INTERVAL + FAILING_SECONDS]
    await heartbeat.stop()


@on_virtual_time
async def test_while_the_supervisor_beats_the_worker_does_not(
    timing: VirtualTiming, supervised: Supervised, database: BeatenDatabase
):
    supervised.heartbeat.start()
    for _ in range(10):
        await asyncio.sleep(INTERVAL)
        supervised.beat()

    assert supervised.heartbeat.is_steady
    assert database.beats == []
    await supervised.heartbeat.stop()


@on_virtual_time
async def test_when_the_supervisor_falls_silent_the_worker_beats_in_time(
    timing: VirtualTiming, supervised: Supervised, database: BeatenDatabase
):
    supervised.heartbeat.start()
    await asyncio.sleep(3 * TIMEOUT - 1)
    await supervised.heartbeat.stop()

    # After 0.6 of the timeout, at the next of the looks that it takes four times in an interval.
    assert database.beats == [20.0, 40.0, 60.0, 80.0]


@on_virtual_time
async def test_beats_that_came_while_nobody_listened_count_from_when_they_were_sent(
    timing: VirtualTiming, supervised: Supervised
):
    # As after a long call that held the interpreter: the beats wait in the socket.
    await asyncio.sleep(2 * TIMEOUT)
    supervised.beat(ago=INTERVAL)

    assert supervised.heartbeat.silence == INTERVAL / TIMEOUT


@on_virtual_time
async def test_beats_for_an_instance_of_the_past_do_not_count(timing: VirtualTiming, supervised: Supervised):
    await asyncio.sleep(2 * TIMEOUT)
    supervised.beat(instance=uuid4())

    assert supervised.heartbeat.silence == 2


@on_virtual_time
async def test_the_supervisor_passes_on_that_the_instance_was_declared_dead(
    timing: VirtualTiming, supervised: Supervised, owner: Owner
):
    supervised.heartbeat.start()
    supervised.beat(known=False)
    await asyncio.sleep(INTERVAL)

    assert owner.deaths == 1


@on_virtual_time
async def test_a_worker_whose_supervisor_is_gone_knows_it_and_beats_itself(
    timing: VirtualTiming, supervised: Supervised, database: BeatenDatabase
):
    supervised.heartbeat.start()
    supervised.channel.close()
    await asyncio.sleep(3 * INTERVAL + 1)
    await supervised.heartbeat.stop()

    assert database.beats == [INTERVAL, 2 * INTERVAL, 3 * INTERVAL]
    assert supervised.supervisor.orphans == 1


def test_the_supervisor_says_when_to_stop_and_when_to_hurry(supervised: Supervised):
    supervised.channel.notify("stop", now=False)
    supervised.channel.notify("stop", now=True)
    supervised.supervisor.listen()

    assert supervised.supervisor.stops == [False, True]


@on_virtual_time
async def test_the_supervisor_is_told_as_whom_the_worker_lives(timing: VirtualTiming, supervised: Supervised):
    def said() -> list[Any]:
        return [(message["instance"], message["worker_info"]) for message in supervised.channel.receive()]

    supervised.heartbeat.start()
    assert said() == [(str(supervised.instance), VITALS)]
    await supervised.heartbeat.stop()
    assert said() == [(None, None)]


def test_nobody_waits_for_the_other_end_of_a_line_and_no_line_is_torn():
    ours, socket = SupervisorChannel.pair()
    theirs = SupervisorChannel(socket, RunningTable.create())
    for number in range(5_000):
        ours.notify("tick", number=number, padding="x" * 100)

    heard = [message["number"] for message in theirs.receive()]
    ours.notify("tick", number=-1)

    assert heard == list(range(len(heard)))
    assert 0 < len(heard) < 5_000
    # The rest of the line that was cut off comes first, and then what was said last.
    assert [message["number"] for message in theirs.receive()][-1] == -1
    theirs.close()
    ours.close()
