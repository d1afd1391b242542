"""Many programs that use a fresh database at the same moment: one creates the tables, and all go on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasklib import TaskQueue

pytestmark = pytest.mark.new_schema  # what makes tables is tested here

PROGRAMS = 8


@pytest.mark.backends("sqlite-file", "postgres")  # each program opens it for itself
@pytest.mark.parametrize("round_", range(3))
def test_the_tables_are_created_once(database_url: str, round_: int) -> None:
    together = threading.Barrier(PROGRAMS)

    def use(number: int) -> None:
        with TaskQueue(database_url) as queue:
            together.wait(180)
            queue.enqueue("job", {"n": number})

    with ThreadPoolExecutor(PROGRAMS) as programs:
        list(programs.map(use, range(PROGRAMS)))

    with TaskQueue(database_url) as queue:
        assert {task.kwargs["n"] for task in queue.list()} == set(range(PROGRAMS))
        assert queue.migrate() == []
