"""The write-ahead log of a SQLite file: kept short, without writing back to the file with every commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklib import Config, TaskQueue
from tasklib.storage.sqlite.database import CHECKPOINT_BYTES

LARGE = "x" * 500_000


def test_a_log_that_was_long_once_is_not_written_back_with_every_commit(sqlite_url: str) -> None:
    log = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")
    sent: list[str] = []
    with TaskQueue(Config(database_url=sqlite_url)) as queue:
        queue.count()
        database: Any = queue.database
        database._writer.set_trace_callback(sent.append)
        for _ in range(2 * CHECKPOINT_BYTES // len(LARGE)):
            queue.enqueue("job", {"text": LARGE})
        assert 1 <= checkpoints(sent) <= 3
        sent.clear()
        for _ in range(50):
            queue.enqueue("job")
        assert checkpoints(sent) <= 1
        assert log.stat().st_size <= CHECKPOINT_BYTES + len(LARGE)


def checkpoints(sent: list[str]) -> int:
    return sum("wal_checkpoint" in statement for statement in sent)
