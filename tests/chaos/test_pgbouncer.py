"""Workers behind PgBouncer in transaction mode, where nothing of a session lasts: Debian's 1.18, the oldest in use."""

from __future__ import annotations

import random

import psycopg
import pytest

from tasklib import Config, TaskQueue
from tasklib.doctor import examine
from tests.chaos.conftest import StartFleet
from tests.chaos.test_kills import kill_one
from tests.fixtures.pooler import PGBOUNCER, direct
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]


@pytest.mark.parametrize("declared", [{}, {"prepare_statements": False}], ids=["undeclared", "declared"])
def test_work_goes_on_through_the_pooler_while_workers_are_killed(
    pgbouncer_url: str, newest_postgres_url: str, start_fleet: StartFleet, declared: dict[str, bool]
):
    fleet, queue = start_fleet(
        pgbouncer_url, history_url=newest_postgres_url, listen_url=direct(newest_postgres_url), **declared
    )
    fleet.start("--concurrency", "8", processes=2)
    producer = fleet.produce(queue, 1000)
    chance = random.Random(1)
    for share in (200, 600, 1000):
        eventually(lambda share=share: fleet.ledger.count() >= share, 120)
        kill_one(fleet, chance, {"worker": 1})
    eventually(lambda: producer.is_done, 120)
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0, 120)

    assert queue.count(state="completed") == 1000
    assert "prepared statement" not in fleet.services[0].log
    fleet.stop()
    # Whoever else uses the pooler finds its sessions as the server gives them.
    changed = "SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
    for _ in range(20):
        with psycopg.connect(direct(pgbouncer_url), prepare_threshold=None) as other:
            assert other.execute(changed).fetchall() == []


@pytest.mark.parametrize("listens", [True, False], ids=["listen_url", "polling"])
def test_a_new_task_starts_by_notification_or_within_the_poll_interval(
    pgbouncer_url: str, newest_postgres_url: str, start_fleet: StartFleet, listens: bool
):
    url = {"listen_url": direct(newest_postgres_url)} if listens else {}
    fleet, queue = start_fleet(
        pgbouncer_url, history_url=newest_postgres_url, worker_timeout_seconds=30, prepare_statements=False, **url
    )
    poll = 600.0 if listens else 1.0
    fleet.start("--concurrency", "1", "--poll-interval", str(poll))
    for _ in range(5):
        task_id = queue.enqueue("quick")
        eventually(lambda task_id=task_id: fleet.ledger.starts_of(task_id))
    fleet.stop()


def test_the_doctor_knows_it(pgbouncer_url: str, newest_postgres_url: str):
    def found(**settings: object) -> set[str]:
        config = Config(database_url=pgbouncer_url, **settings)  # type: ignore[arg-type]
        return {each.code for each in examine(config) if each.code.startswith("pooler")}

    with TaskQueue(newest_postgres_url) as queue:
        queue.migrate()
    assert found() == {"pooler-listen"}
    assert found(prepare_statements=True) == {"pooler-prepared", "pooler-listen"}
    assert found(prepare_statements=False, listen_url=direct(newest_postgres_url)) == set()
