"""Notices: who shows a queue hears of submissions without looking."""

from __future__ import annotations

import pytest

from tasklib.service.insights.notices import Notices
from tests.fixtures.queues import Face

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_a_submission_is_noticed_and_so_is_the_next(queue: Face) -> None:
    notices = Notices(queue.plain)

    async def hear() -> None:
        await notices.open()
        for _ in range(3):
            while await notices.notified_within(0):
                pass  # what was committed before
            await queue.plain.aenqueue("job")
            assert await notices.notified_within(60)

    try:
        queue.run_coroutine(hear())
    finally:
        notices.close()


@pytest.mark.backends("postgres-newest")
def test_nobody_notifies_while_nobody_asks(queue: Face) -> None:
    notices = Notices(queue.plain)

    async def hear() -> None:
        await notices.open()
        while await notices.notified_within(0):
            pass
        assert len(queue.sql("SELECT * FROM tasklib_idle")) == 1
        await queue.plain.aenqueue("job")
        assert await notices.notified_within(60)
        assert queue.sql("SELECT * FROM tasklib_idle") == [], "a commit pays for a notice only where one was asked for"

    try:
        queue.run_coroutine(hear())
    finally:
        notices.close()
