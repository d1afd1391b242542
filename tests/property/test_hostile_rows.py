"""Rows as anybody may write them: whatever a column holds, work goes on beside it and every list answers."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tasklib import TaskQueue, TaskState
from tests.fixtures.backends import libpq_url

DEEP = "[" * 900 + "]" * 900  # SQLite from 3.46 on refuses 1,000 levels by itself
LESS_DEEP = '{"a":' * 300 + "1" + "}" * 300
HUGE = '{"n": ' + "9" * 5000 + "}"
JSON = (
    DEEP,
    LESS_DEEP,
    HUGE,
    "null",
    "[]",
    "3",
    '"text"',
    '{"a": 1}',
    "[[1, 2]]",
    '{"value": 1}',
    "1e400",
    '"\\ud800"',
)
TIMES = (
    *("infinity", "-infinity", "0044-03-15 12:00:00 BC", "12000-01-01", "9999-12-31 23:59:59.999999", "0001-01-01"),
    *("0001-01-02 00:00:00", "9999-12-30 23:59:59", "2024-01-01 00:00:00", "2024-02-31 00:00:00", "now", "", "x"),
    *("2024-01-01T00:00:00Z", "2024-01-01 00:00:00.1", "2024-01-01 00:00:00+14"),
)
NUMBERS = (
    "0",
    "-1",
    "1",
    "0.5",
    "2147483647",
    "2147483646",
    "2000000000",
    "-2147483648",
    "9223372036854775807",
    "1e308",
)
FLOATS = ("'NaN'", "'Infinity'", "'-Infinity'", "9e999", "'abc'")
TEXTS = (
    "''",
    "'x'",
    "'good'",
    "NULL",
    "x'ff00'",
    "CAST(x'ff' AS TEXT)",
    "'" + "k" * 3000 + "'",
    "'**********'",
    "'a\nb'",
)
WAITS = (
    *("sleep", "retry", "event", "event paid", "answer", "answer ok", "children", "children all", "budget", "code"),
    *("budget day", "event\n", "sleep x", "Sleep", " ", "children " + "k" * 2000),
)
UUIDS = (
    "018f2d3b-0000-7000-8000-000000000000",
    "018F2D3B000070008000000000000001",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
)
KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("args", "kwargs", "tags", "headers", "result", "history", "log"), tuple(f"'{each}'" for each in JSON)
    ),
    **dict.fromkeys(
        (
            *(
                "scheduled_at",
                "created_at",
                "updated_at",
                "started_at",
                "completed_at",
                "next_retry_at",
                "locked_until",
            ),
            *("expires_at", "cancel_requested_at"),
        ),
        tuple(f"'{each}'" for each in TIMES),
    ),
    **dict.fromkeys(("priority", "version", "attempts", "retry_count", "max_retries", "lost_count"), (*NUMBERS, "'x'")),
    **dict.fromkeys(("timeout_seconds", "progress"), (*NUMBERS, *FLOATS)),
    "watched": ("true", "'x'", "NULL"),
    "marks": (*NUMBERS, "7", "22", "32", "52", "32767", "'x'"),
    "waits_for": (*TEXTS, *(f"'{each}'" for each in WAITS)),
    **dict.fromkeys(
        (
            "error",
            "progress_message",
            "worker_id",
            "finished_by",
            "unique_key",
            "concurrency_key",
            "fingerprint",
            "name",
        ),
        TEXTS,
    ),
    **dict.fromkeys(("id", "group_id"), (*TEXTS, *(f"'{each}'" for each in UUIDS))),
    "seq": NUMBERS,
    "state": ("'running'", "'completed'", "'failed'", "'buried'", "'x'"),
}
STATES = (
    "",
    "state = 'running', locked_until = '2024-01-01 00:00:00'",
    "state = 'completed', completed_at = '2024-01-01 00:00:00'",
    "state = 'failed', completed_at = '2024-01-01 00:00:00'",
    "state = 'failed', next_retry_at = '2024-01-01 00:00:00'",
    "waits_for = 'event paid', marks = 4",
    "waits_for = 'children', marks = 20",
)
"""What the rest of the row is, as `column = value`."""
DONE = {"state": "'completed'", "completed_at": "'2024-01-01 00:00:00'"}
BESIDE = {"completed_at": DONE, "result": DONE, "state": {"locked_until": "'2024-01-01 00:00:00'"}}
"""What a column needs beside it to be taken at all."""


@st.composite
def inserts(draw: st.DrawFn) -> str:
    """An INSERT with one or two columns as nobody should fill them."""
    row = {"name": "'good'"}
    row |= dict(each.split(" = ") for each in draw(st.sampled_from(STATES)).split(", ") if each)
    for column in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2)):
        row[column] = draw(st.sampled_from(KINDS[column]))
    return insert(row)


def insert(row: dict[str, str]) -> str:
    return f"INSERT INTO tasks ({', '.join(row)}) VALUES ({', '.join(row.values())})"


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.timeout(120)
def test_whatever_a_row_holds_others_are_run_and_lists_answer(database_url: str):
    with Site(database_url) as site:
        columns = site.columns()
        assert columns <= set(KINDS), (
            "a column that this test does not know: say in KINDS what somebody may write there"
        )
        # Each of them once, and then some together.
        alone = {
            column: [insert({"name": "'good'"} | BESIDE.get(column, {}) | {column: value}) for value in KINDS[column]]
            for column in sorted(columns)
        }
        taken = site.bear([each for some in alone.values() for each in some])
        untried = [column for column, some in alone.items() if not taken & set(some)]
        assert untried == ["seq"], "the database takes none of the values tried, so the test shows nothing"

        @settings(
            max_examples=8,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(st.lists(inserts(), min_size=20, max_size=40))
        def together(some: list[str]) -> None:
            site.bear(some)

        together()


class Site:
    """A queue with a function, its HTTP service, and another program's way to the table."""

    def __init__(self, url: str) -> None:
        self.queue = TaskQueue(url)
        self.queue.register_handler("good", lambda payload: "done")
        self.loop = asyncio.Runner()
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.queue.asgi(auth=None)), base_url="http://localhost"
        )
        self.queue.count()  # the tables are there
        self.raw: Any = (
            sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            if url.startswith("sqlite")
            else psycopg.connect(libpq_url(url), autocommit=True)
        )

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()
        self.loop.run(self.queue.aclose())
        self.loop.close()
        self.queue.close()

    def columns(self) -> set[str]:
        """What an INSERT may name, as the database lists it."""
        if isinstance(self.raw, sqlite3.Connection):
            found = self.raw.execute("SELECT name FROM pragma_table_xinfo('tasks') WHERE hidden = 0")
        else:
            found = self.raw.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'tasks'::regclass AND attnum > 0"
                " AND NOT attisdropped AND attgenerated = ''"
            )
        return {column for (column,) in found}

    def bear(self, statements: list[str]) -> set[str]:
        """Let somebody write these rows, as far as the database takes them; nothing else may suffer."""
        self.raw.execute("DELETE FROM tasks")
        taken = [each for each in statements if self.write(each)]
        good = self.queue.enqueue("good", {"n": 1}, priority=-5)
        shown = "\n".join(each[:200] for each in taken)

        self.loop.run(self.queue.aprocess_batch())
        self.queue.recover_stale_tasks()

        task = self.queue.get(good)
        assert task is not None
        assert task.state is TaskState.COMPLETED, shown
        (rows,) = self.raw.execute("SELECT count(*) FROM tasks").fetchone()
        listed = self.queue.list(limit=1000)
        assert len(listed) == rows == self.queue.stats().total, shown
        for each in listed:
            found = self.queue.get(each.id)
            assert found is not None
            assert found.id == each.id
            self.queue.explain(each.id)
        self.loop.run(self.ask(rows))
        return set(taken)

    def write(self, statement: str) -> bool:
        try:
            self.raw.execute(statement)
        except (psycopg.Error, sqlite3.Error):
            return False
        return True

    async def ask(self, rows: int) -> None:
        """Every list of the service answers, and says of each row where it stands."""
        pages = [page async for page in self.pages()]
        assert sum(len(page["tasks"]) for page in pages) == rows
        for each in pages[0]["tasks"][:20]:
            await self.get(f"/api/tasks/{each['id']}")
        for path in (
            "/api/tasks?status=failed",
            "/api/tasks?search=x",
            "/api/tasks/stats",
            "/api/types",
            "/api/errors",
        ):
            await self.get(path)

    async def pages(self) -> Any:
        path = "/api/tasks?limit=100"
        while path:
            page = await self.get(path)
            yield page
            path = f"/api/tasks?limit=100&cursor={page['nextCursor']}" if page["nextCursor"] else ""

    async def get(self, path: str) -> Any:
        response = await self.http.get(path)
        assert response.status_code == 200, (path, response.text[:500])
        return json.loads(response.text)
