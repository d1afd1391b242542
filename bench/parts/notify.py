"""What the wake-up trigger costs committers: single-row inserts with and without it, by 1, 16 and 64 sessions.

    python -m bench notify                          the shipped trigger, and the library's own submit
    python -m bench notify --alternatives           other ways to look whether somebody waits

Rates on a shared machine swing; so every variant runs once in each round, beside the others, and what is compared is
the median of the rounds' own ratios.  The server's CPU time per insert, of one session that does not wait for the disk,
is steadier.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.report import middle, save, show
from bench.server import durable_server, fresh_schema, tree_cpu_seconds
from tasklib import Config, TaskQueue
from tasklib.storage.dialects.postgres import PostgresDialect
from tools.postgres import Server

SCHEMA = "bench"
CPU_INSERTS = 5_000
INSERT = "INSERT INTO tasks (name, kwargs) VALUES ('webhook.outbound', '{\"url\": \"https://example.com\"}');\n"


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to wake workers: what is done to the shipped schema, and whether somebody waits meanwhile."""

    ddl: str = ""
    idle: bool = False
    then: str = ""
    """What a session does after each insert, in a transaction of its own."""
    beside: str = "no trigger"
    """The variant it is compared with."""
    by_library: bool = False
    """Whether threads of one process submit, and not sessions of pgbench."""


NO_TRIGGER = "DROP TRIGGER tasks_wake ON tasks"
ALWAYS = """
CREATE OR REPLACE FUNCTION tasklib_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tasklib_' || left(md5(TG_TABLE_SCHEMA), 16), 'new');
    RETURN NULL;
END
$$
"""
NOTHING = """
CREATE OR REPLACE FUNCTION tasklib_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END
$$
"""
SEQUENCE_CONDITION = """
CREATE UNLOGGED SEQUENCE tasklib_flag;
DROP TRIGGER tasks_wake ON tasks;
CREATE TRIGGER tasks_wake AFTER INSERT ON tasks FOR EACH STATEMENT
    WHEN (pg_sequence_last_value('tasklib_flag'::regclass) IS NOT NULL) EXECUTE FUNCTION tasklib_wake()
"""
# A sequence is outside of transactions: others see at once that a notice is under way.
ONE_IN_5_MS = """
CREATE UNLOGGED SEQUENCE tasklib_noticed;
CREATE OR REPLACE FUNCTION tasklib_wake() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment bigint;
BEGIN
    IF EXISTS (SELECT FROM tasklib_idle WHERE until > now()) THEN
        moment := extract(epoch FROM clock_timestamp()) * 1000;
        IF coalesce(pg_sequence_last_value('tasklib_noticed'::regclass), 0) < moment - 5 THEN
            PERFORM setval('tasklib_noticed', moment);
            PERFORM pg_notify('tasklib_' || left(md5(TG_TABLE_SCHEMA), 16), 'new');
        END IF;
    END IF;
    RETURN NULL;
END
$$
"""
# A transaction that only notifies has nothing to flush, so it holds the lock of all notifiers for no time.
AFTER_COMMIT = (
    "SELECT pg_notify('tasklib_' || left(md5(current_schema()), 16), 'new')"
    " WHERE EXISTS (SELECT FROM tasklib_idle WHERE until > now());\n"
)

SHIPPED = {
    "no trigger": Variant(NO_TRIGGER),
    "shipped, nobody idle": Variant(),
    "shipped, one idle": Variant(idle=True),
    "queue.enqueue, no trigger": Variant(NO_TRIGGER, by_library=True, beside="queue.enqueue, no trigger"),
    "queue.enqueue, nobody idle": Variant(by_library=True, beside="queue.enqueue, no trigger"),
}
ALTERNATIVES = {
    "trigger that does nothing": Variant(NOTHING),
    "WHEN (sequence), nobody idle": Variant(SEQUENCE_CONDITION),
    "always notify": Variant(ALWAYS),
    "one notice in 5 ms, one idle": Variant(ONE_IN_5_MS, idle=True),
    "notice after commit, nobody idle": Variant(NO_TRIGGER, then=AFTER_COMMIT),
    "notice after commit, one idle": Variant(NO_TRIGGER, idle=True, then=AFTER_COMMIT),
}


class Bench:
    """One server with a schema per variant, so that a round can go from one to the next without delay."""

    def __init__(self, server: Server, variants: dict[str, Variant], seconds: float) -> None:
        self.server = server
        self.seconds = seconds
        self.schemas = {name: f"{SCHEMA}_{number}" for number, name in enumerate(variants)}
        for name, schema in self.schemas.items():
            with fresh_schema(server, schema) as connection:
                if ddl := variants[name].ddl:
                    connection.execute(ddl.encode())
        self.queues: dict[tuple[str, int], TaskQueue] = {}

    def rate(self, name: str, variant: Variant, clients: int) -> float:
        """Commits in a second, by as many sessions of pgbench, or by as many threads that submit."""
        with self.listening(name, variant.idle):
            started = time.monotonic()
            if variant.by_library:
                done = self.submit(self.schemas[name], clients)
            else:
                length = f"--time={max(1, round(self.seconds))}"
                done = self.pgbench(self.schemas[name], INSERT + variant.then, length, clients=clients)
            return done / (time.monotonic() - started)

    def cpu_us(self, name: str, variant: Variant) -> float:
        """What one insert costs the server, without waiting for the disk."""
        with self.listening(name, variant.idle):
            before = tree_cpu_seconds(self.server)
            length = f"--transactions={CPU_INSERTS}"
            done = self.pgbench(self.schemas[name], INSERT + variant.then, length, durable=False)
            return (tree_cpu_seconds(self.server) - before) / done * 1e6

    def submit(self, schema: str, clients: int) -> int:
        """Have as many threads of one process submit for a while; returns how many tasks."""
        if (schema, clients) not in self.queues:
            url = f"{self.server.url}?schema={schema}"
            self.queues[schema, clients] = TaskQueue(Config(database_url=url, pool_size=clients))
        queue = self.queues[schema, clients]
        counts = [0] * clients
        start, deadline = threading.Barrier(clients), time.monotonic() + 600

        def submit(number: int) -> None:
            nonlocal deadline
            queue.enqueue("webhook.outbound", {"url": "https://example.com"})
            if start.wait() == 0:
                deadline = time.monotonic() + self.seconds
            while time.monotonic() < deadline:
                queue.enqueue("webhook.outbound", {"url": "https://example.com"})
                counts[number] += 1

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) + clients

    @contextmanager
    def listening(self, name: str, idle: bool) -> Iterator[None]:
        """Somebody who waits for new tasks and, other than a worker, never begins to work; or nobody."""
        if not idle:
            yield
            return
        dialect = PostgresDialect(self.schemas[name])
        options = f"-csearch_path={dialect.schema}"
        with psycopg.connect(self.server.url, autocommit=True, options=options) as connection:
            connection.execute(f"LISTEN {dialect.channel}".encode())
            connection.execute("INSERT INTO tasklib_idle VALUES (gen_random_uuid(), 'any', now() + interval '1 hour')")
            ended = threading.Event()
            reader = threading.Thread(target=_read_notices, args=(connection, ended))
            reader.start()
            yield
            ended.set()
            reader.join()
            connection.execute("DELETE FROM tasklib_idle")

    def pgbench(self, schema: str, statements: str, length: str, *, clients: int = 1, durable: bool = True) -> int:
        """Have as many sessions run the statements, over and over; returns how often."""
        session = f"-csearch_path={schema} -csynchronous_commit={'on' if durable else 'off'}"
        target = f"host=127.0.0.1 port={self.server.port} user=postgres options='{session}' dbname=postgres"
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(statements)
            script.flush()
            program = [str(self.server.installation.bindir / "pgbench"), "--no-vacuum", "--protocol=prepared", length]
            size = [f"--client={clients}", f"--jobs={min(clients, 2)}", f"--file={script.name}"]
            done = subprocess.run([*program, *size, target], check=True, capture_output=True, text=True)
        found = re.search(r"actually processed: (\d+)", done.stdout)
        assert found, done.stdout
        return int(found[1])

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()


def _read_notices(connection: psycopg.Connection, ended: threading.Event) -> None:
    while not ended.is_set():
        for _ in connection.notifies(timeout=0.1, stop_after=1000):
            pass


def run(options: argparse.Namespace) -> None:
    """Measure each variant and print its rates."""
    variants = SHIPPED | (ALTERNATIVES if options.alternatives else {})
    rates: dict[tuple[str, int], list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with durable_server(options.postgres) as server:
        bench = Bench(server, variants, options.seconds)
        for _ in range(options.rounds):
            for name, variant in variants.items():
                if not variant.by_library:
                    cpu.setdefault(name, []).append(bench.cpu_us(name, variant))
            for clients in options.clients:
                for name, variant in variants.items():
                    rates.setdefault((name, clients), []).append(bench.rate(name, variant, clients))
        bench.close()
        version = server.installation.version
    columns, rows = ["variant", "CPU µs"], []
    for clients in options.clients:
        columns += [f"{clients} sessions /s", "ratio"]
    for name, variant in variants.items():
        cells = [name, f"{middle(cpu[name]):.0f}" if name in cpu else ""]
        for clients in options.clients:
            mine, plain = rates[name, clients], rates[variant.beside, clients]
            ratio = middle([one / other for one, other in zip(mine, plain, strict=True)])
            cells += [f"{middle(mine):,.0f}", f"{ratio:.2f}"]
        rows.append(cells)
    title = f"PostgreSQL {version}: durable single-row inserts, {options.rounds} rounds of {options.seconds:g} s"
    show(title, columns, rows)
    results = [{"variant": name, "clients": clients, "per_second": found} for (name, clients), found in rates.items()]
    save(options.json, {"postgres": version, "seconds": options.seconds, "cpu_us": cpu, "results": results})


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alternatives", action="store_true", help="also other ways to look whether somebody waits")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every run to this file")
