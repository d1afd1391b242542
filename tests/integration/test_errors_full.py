"""No room left: an error that says so, nothing half stored, and all is well once there is room again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tasklib import DatabaseFull
from tests.fixtures.disks import fill_up, small_disk
from tests.fixtures.queues import FORMS, Face, Form, open_queue
from tools.postgres import account

PAYLOAD = {"text": random.Random(1).randbytes(100_000).hex()}
"""Larger than any room a database keeps in reserve, and not to be compressed away."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture
def disk() -> Iterator[Path | None]:
    """A disk of a few megabytes; None without the right to mount one, and then the database is told to be small."""
    with small_disk(8) as folder:
        yield folder


def test_a_full_disk_under_sqlite(disk: Path | None, tmp_path: Path, form: Form):
    with open_queue(f"sqlite:///{disk or tmp_path}/tasks.db", form) as queue:
        stored = [queue.enqueue("job", PAYLOAD)]
        if disk is not None:
            filler = fill_up(disk)
        else:
            _limit(queue, 0)

        for _ in range(2):
            with pytest.raises(DatabaseFull, match="nothing was stored"):
                queue.enqueue("job", PAYLOAD)
        assert [task.id for task in queue.list()] == stored

        if disk is not None:
            filler.unlink()
        else:
            _limit(queue, 1_000_000)
        stored.append(queue.enqueue("job", PAYLOAD))
        assert [task.id for task in reversed(queue.list())] == stored


def test_a_full_disk_under_sqlite_stores_no_part_of_a_batch(disk: Path | None, tmp_path: Path, form: Form):
    with open_queue(f"sqlite:///{disk or tmp_path}/tasks.db", form) as queue:
        job = queue.plain.task(name="job")(_take_text)
        queue.via(job).submit(text="first")
        if disk is not None:
            fill_up(disk)
        else:
            _limit(queue, 0)

        with pytest.raises(DatabaseFull):
            queue.via(job).submit_many([{"text": PAYLOAD["text"]} for _ in range(50)])

        assert [task.kwargs["text"] for task in queue.list()] == ["first"]


def test_a_full_disk_under_postgresql(disk: Path | None, newest_postgres_url: str, form: Form):
    with open_queue(newest_postgres_url, form) as queue:
        stored = [queue.enqueue("job", PAYLOAD)]
        moved = disk is not None and _move(queue, disk)
        if moved:
            filler = fill_up(disk)
        else:
            _refuse(queue)

        for _ in range(2):
            with pytest.raises(DatabaseFull, match="nothing was stored"):
                queue.enqueue("job", PAYLOAD)
        assert [task.id for task in reversed(queue.list())] == stored

        if moved:
            filler.unlink()
        else:
            queue.sql("DROP TRIGGER full_disk ON tasks")
        stored.append(queue.enqueue("job", PAYLOAD))
        assert [task.id for task in reversed(queue.list())] == stored
        if moved:
            queue.sql("ALTER TABLE tasks SET TABLESPACE pg_default")
            queue.sql(f"DROP TABLESPACE {_space(disk)}")


def _limit(queue: Face, pages: int) -> None:
    """SQLite's own way to be full; below the present size it means the present size."""
    queue.plain.database._opened().execute(f"PRAGMA max_page_count = {pages or 1}")  # type: ignore[attr-defined]


def _move(queue: Face, disk: Path) -> bool:
    """Keep the table on the small disk; False if the server does not see it, because it runs elsewhere."""
    account.give(disk)
    try:
        queue.sql(f"CREATE TABLESPACE {_space(disk)} LOCATION '{disk}'")
    except psycopg.OperationalError:
        return False
    queue.sql(f"ALTER TABLE tasks SET TABLESPACE {_space(disk)}")
    return True


def _space(disk: Path) -> str:
    return disk.name.replace("-", "_").lower()


def _refuse(queue: Face) -> None:
    """Without a disk to fill, the server is made to say what it says when one is full."""
    queue.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    )
    queue.sql("CREATE TRIGGER full_disk BEFORE INSERT ON tasks EXECUTE FUNCTION full_disk()")


def _take_text(text: str) -> None: ...
