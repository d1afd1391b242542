"""What claiming and completing costs: batches driven by hand on one connection, to compare physical designs.

    python -m bench claim                                   the shipped design, batches of 100, 200 and 500
    python -m bench claim --design shipped --design "fillfactor 70" --batch 200

Rate depends on the machine and on who else uses it; server CPU and log bytes per task hardly do.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import psycopg

from bench.report import middle, save, show, spread
from bench.server import cpu_seconds, durable_server, fresh_schema
from tasklib.core.outcome import Completion
from tasklib.core.time.clock import DatabaseClock
from tasklib.storage.dialects.postgres import PostgresDialect, translate
from tasklib.storage.operations.attempts import complete_tasks
from tasklib.storage.operations.claims import Claim, claim_tasks
from tasklib.storage.operations.workers import Registration, register_worker
from tasklib.storage.postgres.sending import execute
from tasklib.storage.postgres.session import SESSION
from tasklib.storage.run import run_blocking, steps
from tasklib.storage.statement import Operation, T
from tools.postgres import Server

SCHEMA = "bench"
WORKER_ID = "worker-7f9c4d:31337:a1b2c3"
LOAD = """
INSERT INTO tasks (id, name, kwargs)
SELECT
    ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'noop.' || (n %% %(types)s),
    jsonb_build_object('n', n) || CASE WHEN %(payload)s > 0 THEN jsonb_build_object('text', repeat('x', %(payload)s))
        ELSE '{}' END
FROM generate_series(1, %(tasks)s) AS n
"""
CHECKS = (
    "tasks_ended_when_terminal",
    "tasks_retry_when_waiting",
    "tasks_suspended_when_pending",
    "tasks_leased_when_running",
    "tasks_result_when_completed",
)
WITHOUT_CHECKS = (
    *(f"ALTER TABLE tasks DROP CONSTRAINT {name}" for name in CHECKS),
    # Those of single columns are their domains'.
    """
    DO $$
    DECLARE
        change text;
    BEGIN
        FOR change IN SELECT format('ALTER DOMAIN %s DROP CONSTRAINT %I', contypid::regtype, conname) FROM pg_constraint
                      WHERE contypid <> 0 AND connamespace = current_schema::regnamespace LOOP
            EXECUTE change;
        END LOOP;
    END $$
    """,
)
WITHOUT_SIDE_COLUMNS = (
    "ALTER TABLE tasks DROP COLUMN live_key",
    "ALTER TABLE tasks DROP COLUMN trouble",
)


@dataclass(frozen=True, slots=True)
class Design:
    """A variant of the table: what is done to it while it is empty, and what the claim writes beside the rest."""

    ddl: tuple[str, ...] = ()
    claim_sets: str = ""


DESIGNS = {
    "shipped": Design(),
    "fillfactor 30": Design(("ALTER TABLE tasks SET (fillfactor = 30)",)),
    "fillfactor 35": Design(("ALTER TABLE tasks SET (fillfactor = 35)",)),
    "fillfactor 40": Design(("ALTER TABLE tasks SET (fillfactor = 40)",)),
    "fillfactor 45": Design(("ALTER TABLE tasks SET (fillfactor = 45)",)),
    "fillfactor 50": Design(("ALTER TABLE tasks SET (fillfactor = 50)",)),
    "fillfactor 60": Design(("ALTER TABLE tasks SET (fillfactor = 60)",)),
    "fillfactor 70": Design(("ALTER TABLE tasks SET (fillfactor = 70)",)),
    "fillfactor 100": Design(("ALTER TABLE tasks SET (fillfactor = 100)",)),
    "no seq index": Design(("DROP INDEX tasks_seq",)),
    "no checks": Design(WITHOUT_CHECKS),
    "only due_at generated": Design(WITHOUT_SIDE_COLUMNS),
    "nothing generated": Design(
        (
            *WITHOUT_SIDE_COLUMNS,
            "ALTER TABLE tasks ALTER COLUMN due_at DROP EXPRESSION",
            "ALTER TABLE tasks ALTER COLUMN due_at SET DEFAULT now()",
        ),
        "due_at = NULL, ",
    ),
    "bare": Design(
        (
            *WITHOUT_SIDE_COLUMNS,
            "ALTER TABLE tasks ALTER COLUMN due_at DROP EXPRESSION",
            "ALTER TABLE tasks ALTER COLUMN due_at SET DEFAULT now()",
            *WITHOUT_CHECKS,
            "DROP INDEX tasks_seq",
        ),
        "due_at = NULL, ",
    ),
}


@dataclass(slots=True)
class Cost:
    """One drain, per task."""

    per_second: float
    server_us: float
    client_us: float
    wal_bytes: float
    hot: float
    """Finishes that touched no index."""
    table_bytes: float


@dataclass(slots=True)
class Drain:
    """One worker's hand: a connection, and the claim and the completion run on it as the library runs them."""

    connection: psycopg.Connection
    dialect: PostgresDialect
    instance: UUID = field(default_factory=uuid4)

    def run(self, operation: Operation[T]) -> T:
        return run_blocking(
            steps(operation, translate, DatabaseClock()), lambda s: execute(self.connection, self.dialect, s)
        )

    def register(self) -> None:
        self.run(register_worker(Registration(self.instance, WORKER_ID, "here", 1, 60.0, 1, ())))

    def work(self, names: list[str], batch: int) -> int:
        """Claim and complete until nothing is due; returns how many."""
        done = 0
        while True:
            claimed = self.run(
                claim_tasks(
                    Claim(
                        instance=self.instance,
                        worker_id=WORKER_ID,
                        names=names,
                        limit=batch,
                        lease_seconds=600.0,
                        held=[],
                        keyed=False,
                        limited=False,
                    )
                )
            ).tasks
            if not claimed:
                return done
            moment = time.monotonic()
            self.run(complete_tasks([Completion(t.id, t.version, '{"value": null}', moment, moment) for t in claimed]))
            done += len(claimed)


def measure(
    server: Server, design: Design, *, tasks: int, batch: int, types: int, payload: int = 0, snapshot: bool = False
) -> Cost:
    """Fill a fresh table and drain it, if asked while another session holds on to the table as it was before."""
    with fresh_schema(server, SCHEMA) as connection, psycopg.connect(server.url) as other:
        for statement in design.ddl:
            connection.execute(statement.encode())
        connection.execute(LOAD, {"types": types, "tasks": tasks, "payload": payload})
        connection.execute("ANALYZE tasks")
        connection.execute(SESSION)
        drain = Drain(connection, PostgresDialect(SCHEMA))
        if design.claim_sets:
            text = drain.dialect.pyformat["claim_tasks"]
            marker = "version = t.version + 1, "
            assert text.count(marker) == 1
            drain.dialect.pyformat = {
                **drain.dialect.pyformat,
                "claim_tasks": text.replace(marker, marker + design.claim_sets),
            }
        drain.register()
        if snapshot:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("SELECT pg_current_snapshot()")
        pid = connection.info.backend_pid
        before = cpu_seconds(pid), time.process_time(), _wal(connection), time.monotonic()
        done = drain.work([f"noop.{n}" for n in range(types)], batch)
        after = cpu_seconds(pid), time.process_time(), _wal(connection), time.monotonic()
        server_cpu, client_cpu, wal, wall = (b - a for a, b in zip(before, after, strict=True))
        assert done == tasks
        hot = _hot_updates(connection)
        size = _number(connection, "SELECT pg_table_size('tasks')")
    return Cost(done / wall, server_cpu / done * 1e6, client_cpu / done * 1e6, wal / done, hot / done, size / done)


def _wal(connection: psycopg.Connection) -> int:
    return _number(connection, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")


def _hot_updates(connection: psycopg.Connection) -> int:
    """How many updates of this session touched no index; a session tells the server's statistics when it ends."""
    flush = "SELECT pg_stat_force_next_flush()" if connection.info.server_version >= 150000 else "SELECT 1"
    connection.execute(flush)
    return _number(connection, "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'tasks'::regclass")


def _number(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def run(options: argparse.Namespace) -> None:
    """Measure each design and print what it costs."""
    designs = list(DESIGNS) if options.all else options.design or ["shipped"]
    runs: dict[tuple[str, int], list[Cost]] = {}
    with durable_server(options.postgres) as server:
        for _ in range(options.rounds):
            for name in designs:
                for batch in options.batch:
                    cost = measure(
                        server,
                        DESIGNS[name],
                        tasks=options.tasks,
                        batch=batch,
                        types=options.types,
                        payload=options.payload,
                        snapshot=options.snapshot,
                    )
                    runs.setdefault((name, batch), []).append(cost)
        version = server.installation.version
    rows = [
        (
            name,
            str(batch),
            f"{middle([c.per_second for c in costs]):,.0f} ±{spread([c.per_second for c in costs]):.0%}",
            f"{middle([c.server_us for c in costs]):.1f} (≥ {min(c.server_us for c in costs):.1f})",
            f"{middle([c.client_us for c in costs]):.1f}",
            f"{middle([c.wal_bytes for c in costs]):,.0f}",
            f"{middle([c.hot for c in costs]):.1%}",
            f"{middle([c.table_bytes for c in costs]):,.0f}",
        )
        for (name, batch), costs in runs.items()
    ]
    title = f"PostgreSQL {version}: {options.tasks:,} tasks of {options.types} types, median of {options.rounds}"
    show(
        title,
        ("design", "batch", "tasks/s", "server µs", "client µs", "log bytes", "finishes HOT", "table bytes"),
        rows,
    )
    result = [{"design": d, "batch": b, "runs": [asdict(c) for c in costs]} for (d, b), costs in runs.items()]
    save(options.json, {"postgres": version, "tasks": options.tasks, "types": options.types, "results": result})


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--design", action="append", choices=list(DESIGNS), help="may be given several times")
    parser.add_argument("--all", action="store_true", help="every design")
    parser.add_argument("--batch", type=int, nargs="+", default=[100, 200, 500])
    parser.add_argument("--tasks", type=int, default=60_000)
    parser.add_argument("--types", type=int, default=1)
    parser.add_argument("--payload", type=int, default=0, help="bytes of text in each task's arguments")
    parser.add_argument("--snapshot", action="store_true", help="another session holds a snapshot open meanwhile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every run to this file")
