"""`tasklib bench` measures beside the user's tasks and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.fixtures.backends import libpq_url
from tests.integration.cli.conftest import CommandLine

MEASURED = ["submit, one by one", "submit, 100 at once", "submit in bulk", "drain", "wake an idle worker"]


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_every_workload_is_measured_and_nothing_is_left(tasklib: CommandLine) -> None:
    places = whats_there(tasklib.url)
    found = tasklib.json("bench", "--tasks", "100")
    assert list(found) == MEASURED
    assert found["drain"]["per_second"] > 0
    assert whats_there(tasklib.url) == places


def whats_there(url: str) -> set[str]:
    """The schemas of the server, or the files beside the database."""
    if url.startswith("sqlite"):
        folder = Path(url.removeprefix("sqlite:///")).parent
        return {path.name for path in folder.iterdir() if "bench" in path.name}
    with psycopg.connect(libpq_url(url)) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tasklib_bench_%'")
        return {name for (name,) in rows}
