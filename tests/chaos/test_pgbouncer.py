"""Workers behind PgBouncer in transaction mode, where nothing of a session lasts: Debian's 1.18, the oldest in use."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.chaos.audit import Audit
from tests.chaos.conftest import StartFleet
from tests.chaos.ledger import duplicates
from tests.chaos.producer import Producer
from tests.chaos.test_kills import kill_one
from tests.fixtures.waiting import eventually
from tools.postgres import account
from tools.postgres.starting import free_port, make_directory

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed"),
]
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 500
"""


@pytest.fixture
def pooled_url(newest_postgres_url: str) -> Iterator[str]:
    """The URL of the test's schema by way of the pooler, five connections for everybody."""
    parts = urlsplit(newest_postgres_url)
    port = free_port()
    folder = make_directory(None)
    settings = folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(server=parts.port, port=port))
    settings.chmod(0o644)
    with open(folder / "log", "wb") as log:
        process = account.popen([str(PROGRAM), str(settings)], folder, log)
    url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{port}"))

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            psycopg.connect(urlunsplit(urlsplit(url)._replace(query=""))).close()
        except psycopg.OperationalError:
            return False
        return True

    eventually(answers)
    yield url
    process.terminate()
    process.wait(10)
    shutil.rmtree(folder)


def test_work_goes_on_through_the_pooler_while_workers_are_killed(
    pooled_url: str, newest_postgres_url: str, start_fleet: StartFleet
):
    fleet, queue = start_fleet(pooled_url, prepare_statements=False, listen_url=direct(newest_postgres_url))
    audit = Audit(newest_postgres_url)
    fleet.start("--concurrency", "8", processes=2)
    producer = Producer(queue, 1000)
    chance = random.Random(1)
    for share in (200, 600, 1000):
        eventually(lambda share=share: fleet.ledger.count() >= share, 120)
        kill_one(fleet, chance, {"worker": 1})
    eventually(lambda: producer.is_done, 120)
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0, 120)

    assert queue.count(state="completed") == 1000
    assert duplicates(audit.completions()) == []
    assert duplicates(audit.effects()) == []
    assert fleet.ledger.executed_twice() == []
    assert "prepared statement" not in fleet.services[0].log
    fleet.stop()
    # Whoever else uses the pooler finds its sessions as the server gives them.
    changed = "SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
    for _ in range(20):
        with psycopg.connect(direct(pooled_url), prepare_threshold=None) as other:
            assert other.execute(changed).fetchall() == []


@pytest.mark.parametrize("listens", [True, False], ids=["listen_url", "polling"])
def test_a_new_task_starts_by_notification_or_within_the_poll_interval(
    pooled_url: str, newest_postgres_url: str, start_fleet: StartFleet, listens: bool
):
    url = {"listen_url": direct(newest_postgres_url)} if listens else {}
    fleet, queue = start_fleet(pooled_url, worker_timeout_seconds=30, prepare_statements=False, **url)
    poll = 20.0 if listens else 1.0
    fleet.start("--concurrency", "1", "--poll-interval", str(poll))
    waits = []
    for _ in range(5):
        submitted = time.monotonic()
        task_id = queue.enqueue("quick")
        eventually(lambda task_id=task_id: fleet.ledger.starts_of(task_id), 30)
        waits.append(fleet.ledger.starts_of(task_id)[0].moment - submitted)

    assert max(waits) < (2.0 if listens else poll + 1.0), waits
    fleet.stop()


def direct(url: str) -> str:
    """The server itself; a connection that only listens needs no schema."""
    return urlunsplit(urlsplit(url)._replace(query=""))
