"""Instructions that the server needs for one statement, counted by Valgrind: no other load on the machine changes them.

    python -m bench instructions
    python -m bench instructions --batch 1 200 --postgres 15

Each kind is run in a session that ends, once with few statements and once with more; the difference is theirs.  It
takes some minutes, because Valgrind makes the server about fifty times slower.
"""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

from bench.parts.claim import SCHEMA, WORKER_ID, Drain
from bench.report import show
from tasklib.core.outcome import Completion
from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.operations.attempts import complete_tasks
from tasklib.storage.operations.claims import Claim, claim_tasks
from tasklib.storage.postgres.schema import ensure_schema
from tasklib.storage.postgres.sending import execute
from tasklib.storage.postgres.session import SESSION
from tasklib.storage.statement import Statement
from tools.postgres import Server, available, start

FEW, MANY = 10, 40
SETTINGS = {"autovacuum": "off", "shared_buffers": "32MB"}
NEW_TASK = {
    **dict.fromkeys(("run_at", "now", "timeout_seconds", "concurrency_key", "headers", "expires_at", "expires_in")),
    "name": "noop",
    "kwargs": '{"n": 1}',
    "delay": 0.0,
    "max_retries": 2,
    "priority": 0,
    "tags": "{}",
}
ENTRY = {
    "actor": "local",
    "role": "admin",
    "action": "create_task",
    "target": None,
    "detail": '{"id": "0190f0c2-0000-7000-8000-000000000000"}',
    "remote": "127.0.0.1",
    "request_id": "0190f0c2-0000-7000-8000-000000000000",
}


class Counted:
    """A server whose sessions are counted."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.dialect = PostgresDialect(SCHEMA)

    def connect(self) -> psycopg.Connection:
        """A session as our pools make it; every statement is prepared."""
        connection = psycopg.connect(self.server.url, autocommit=True, options=f"-csearch_path={SCHEMA}")
        connection.execute(SESSION)
        connection.prepare_threshold = 0
        return connection

    def instructions(self, kind: str, batch: int = 1) -> float:
        """How many one statement of the kind needs, or one claim of a kind, or a claim and its finish."""
        if kind not in ("submit", "insert"):
            with self.connect() as connection:
                fill = "INSERT INTO tasks (name, kwargs) SELECT 'noop', '{}' FROM generate_series(1, %s)"
                connection.execute("TRUNCATE tasks")
                connection.execute(fill, ((FEW + MANY) * batch,))
                connection.execute("VACUUM ANALYZE tasks")
        few, many = self._count(kind, FEW, batch), self._count(kind, MANY, batch)
        return (many - few) / (MANY - FEW)

    def _count(self, kind: str, times: int, batch: int) -> int:
        with self.connect() as connection:
            drain = Drain(connection, self.dialect)
            if kind not in ("submit", "insert"):
                drain.register()
            for _ in range(times):
                if kind == "submit":
                    execute(connection, self.dialect, Statement("insert_task", NEW_TASK | {"id": str(uuid4())}))
                elif kind == "created":
                    values = NEW_TASK | ENTRY | {"id": str(uuid4())}
                    execute(connection, self.dialect, Statement("insert_task_audited", values))
                elif kind == "insert":
                    connection.execute("INSERT INTO tasks (name, kwargs) VALUES ('noop', '{}')")
                else:
                    _work(drain, batch, plain=kind in ("plain", "lone"), lone=kind == "lone", finish=kind == "both")
            pid = connection.info.backend_pid
        return self._total(pid)

    def _total(self, pid: int) -> int:
        """What Valgrind wrote when the session had ended."""
        for _ in range(600):
            for path in self.server.directory.glob(f"instructions.{pid}"):
                if found := re.search(r"^(?:totals|summary): (\d+)", path.read_text(), re.MULTILINE):
                    return int(found[1])
            time.sleep(0.1)
        raise RuntimeError(f"Valgrind wrote nothing about process {pid}")


def _work(drain: Drain, batch: int, *, plain: bool, lone: bool, finish: bool) -> None:
    claim = Claim(
        instance=drain.instance,
        worker_id=WORKER_ID,
        names=["noop"],
        limit=batch,
        lease_seconds=600.0,
        held=[],
        plain=plain,
        lone=lone,
        keyed=False,
        limited=False,
    )
    tasks = drain.run(claim_tasks(claim)).tasks
    assert len(tasks) == batch
    if finish:
        drain.run(complete_tasks([Completion(t.id, t.version, '{"value": null}', 1.0, 1.0) for t in tasks]))


@contextmanager
def counting(version: int | None) -> Iterator[Counted]:
    """A server under Valgrind, with our tables."""
    installations = {each.version: each for each in available()}
    with start(installations[version or max(installations)], settings=SETTINGS) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            ensure_schema(connection, PostgresDialect(SCHEMA), migrate=True)
        counts = f"--callgrind-out-file={server.directory}/instructions.%p"
        server.command = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", counts, *server.command]
        server.restart()
        counted = Counted(server)
        counted.connect().close()  # The first session reads the catalogue for all that follow.
        yield counted


def run(options: argparse.Namespace) -> None:
    """Count and print."""
    if shutil.which("valgrind") is None:
        raise SystemExit("this needs Valgrind: apt install valgrind")
    with counting(options.postgres) as counted:
        rows = [("submit", "", f"{counted.instructions('submit'):,.0f}")]
        rows.append(("created over HTTP", "", f"{counted.instructions('created'):,.0f}"))
        rows.append(("INSERT by hand", "", f"{counted.instructions('insert'):,.0f}"))
        rows.append(("claim of a worker that waits", "1", f"{counted.instructions('lone'):,.0f}"))
        for batch in options.batch:
            rows.append(("plain claim", str(batch), f"{counted.instructions('plain', batch) / batch:,.0f}"))
            claim, both = (counted.instructions(kind, batch) / batch for kind in ("claim", "both"))
            rows += [("claim", str(batch), f"{claim:,.0f}"), ("finish", str(batch), f"{both - claim:,.0f}")]
        version = counted.server.installation.version
    show(f"PostgreSQL {version}", ("statement", "tasks", "instructions for each task"), rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 200], help="tasks of one claim and one finish")
