"""The HTTP service on virtual time: it forgets at the exact moment, and its streams never go silent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from tasklib import Config, TaskQueue
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.errors import DatabaseUnavailable
from tasklib.http.live.cache import CachedValue, StatsCache
from tasklib.http.live.live_stats import LiveStats
from tasklib.http.security.throttle import Throttle
from tasklib.http.security.tokens import TokenCheck
from tasklib.http.trouble_log import EVERY_SECONDS, TroubleLog
from tasklib.service.service import QueueService
from tests.fixtures.virtual import on_virtual_time


@pytest.fixture
def service(timing: VirtualTiming) -> Iterator[QueueService]:
    with TaskQueue(Config("sqlite:///:memory:"), clock=timing.clock, timing=timing) as queue:
        yield QueueService(queue)


@on_virtual_time
async def test_a_token_made_elsewhere_closes_the_service_within_a_quarter_of_a_second(
    timing: VirtualTiming, service: QueueService
):
    check = TokenCheck(service.tokens)
    assert not await check.any_exists()
    await service.tokens.acreate("me", "admin")

    await timing.sleep(0.249)
    assert not await check.any_exists()
    await timing.sleep(0.001)
    assert await check.any_exists()


@on_virtual_time
async def test_a_token_revoked_elsewhere_is_refused_after_a_second(timing: VirtualTiming, service: QueueService):
    check = TokenCheck(service.tokens)
    made = await service.tokens.acreate("me", "viewer")
    assert await check.find(made.secret)
    await service.tokens.arevoke(made.token.id)

    await timing.sleep(0.999)
    assert await check.find(made.secret)
    assert not await check.find(made.secret, uncached=True)
    await timing.sleep(0.001)
    assert not await check.find(made.secret)


@on_virtual_time
async def test_a_costly_value_is_read_again_before_it_is_five_seconds_old(timing: VirtualTiming):
    read_at: list[float] = []

    async def read() -> float:
        read_at.append(timing.monotonic())
        await timing.sleep(1)
        return timing.monotonic()

    value = CachedValue(timing, read, is_costly=bool)
    assert [await value.get(), await value.get()] == [1, 1], "the second is told what the first has read"
    await timing.sleep(60)
    assert read_at[:4] == [0, 2.5, 5, 7.5]
    assert timing.monotonic() - await value.get() < 4.5
    await timing.sleep(3600)
    assert 595 < read_at[-1] - 61 < 605, "from then on nobody has asked for ten minutes"


@on_virtual_time
async def test_a_stream_gets_a_beat_every_five_seconds_while_nothing_changes(
    timing: VirtualTiming, service: QueueService
):
    live = LiveStats(service.statistics, StatsCache(service.statistics), threading.Event())
    listener = live.admit("ada")
    assert listener is not None
    events: list[tuple[float, str]] = []
    async for news in live.listen(listener):
        events.append((round(timing.monotonic(), 3), news.event))
        if len(events) == 4:
            break
    live.dismiss(listener)

    assert [event for _, event in events] == ["snapshot", "snapshot", "beat", "beat"]
    assert events[3][0] - events[2][0] == 5


@on_virtual_time
async def test_a_database_that_does_not_answer_is_logged_once_in_half_a_minute(
    timing: VirtualTiming, caplog: pytest.LogCaptureFixture
):
    log = TroubleLog(timing)
    with caplog.at_level(logging.WARNING, "tasklib.http"):
        for _ in range(3):
            log.warn(DatabaseUnavailable("gone"))
        assert len(caplog.records) == 1
        await timing.sleep(EVERY_SECONDS)
        log.warn(DatabaseUnavailable("gone"))
    assert len(caplog.records) == 2


@on_virtual_time
async def test_a_caller_may_create_again_when_its_bucket_has_a_task(timing: VirtualTiming):
    throttle = Throttle(2, timing)
    assert [throttle.take("ada", 2), throttle.take("ada")] == [0, 0.5]
    assert throttle.take("bob") == 0
    await timing.sleep(0.5)
    assert throttle.take("ada") == 0
