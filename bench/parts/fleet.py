"""Many idle workers on one server: what they cost while a hundred tasks a second come in.

    python -m bench fleet --workers 10 100 1000
    python -m bench fleet --workers 2000 --pgbouncer 20 --schemas 10

Each worker is simulated by a connection that does what a worker does: it claims, completes what it has claimed, gets
notified if it may, else polls, sends heartbeats, and counts the fleet.  All run in one process beside the
server, so that of a thousand the process itself may be the one that cannot keep up; then fewer tasks than asked for
are done, and that is shown.  PgBouncer passes on no notifications, so all of them poll.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from psycopg import sql

from bench.pooler import pgbouncer
from bench.report import show
from bench.server import durable_server, fresh_schema, tree_cpu_seconds
from tasklib import Config
from tasklib.core.outcome import Completion
from tasklib.core.time.clock import DatabaseClock
from tasklib.storage.dialects.postgres import PostgresDialect, translate
from tasklib.storage.operations import workers
from tasklib.storage.operations.attempts import complete_tasks
from tasklib.storage.operations.claims import Claim, claim_tasks
from tasklib.storage.postgres.sending import execute_async
from tasklib.storage.postgres.session import SESSION
from tasklib.storage.run import run_awaiting, steps
from tasklib.storage.statement import Operation, T
from tasklib.worker.intake.claimer import FLEET_LOOKS, IDLE_FOR_SECONDS
from tools.postgres import Server

SCHEMA, NAME, AT_ONCE = "bench", "noop", 10
SLOW_LOCK = "still waiting for"


@dataclass(slots=True)
class Tally:
    """What all workers of a fleet have done."""

    claims: int = 0
    done: int = 0


class SimulatedWorker:
    """One connection that behaves like an idle worker with the default settings."""

    def __init__(self, url: str, dialect: PostgresDialect, fleet: int, tally: Tally, *, pooled: bool) -> None:
        self._pooled = pooled
        self._url = url
        self._dialect = dialect
        self._fleet = fleet
        self._tally = tally
        self._config = Config(database_url=url)
        self._instance = uuid4()
        self._connection: psycopg.AsyncConnection
        self._notify_until = 0.0
        self._listens = False
        self._next_beat = self._next_count = 0.0

    async def connect(self) -> None:
        """Register."""
        # Behind a pooler nothing is prepared, and the settings go with each transaction.
        prepare = None if self._pooled else 1
        self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, prepare_threshold=prepare)
        if not self._pooled:
            await self._connection.execute(SESSION)
        who = workers.Registration(self._instance, f"worker-{self._instance}", "here", 1, 600.0, 1, (NAME,))
        await self._run(workers.register_worker(who))

    async def work(self) -> None:
        """Claim whenever there may be something, until cancelled."""
        self._next_beat = time.monotonic() + random.uniform(0, self._config.heartbeat_interval_seconds)
        self._next_count = time.monotonic() + random.uniform(0, self._config.worker_timeout_seconds / 3)
        while True:
            claimed = await self._run(
                claim_tasks(
                    Claim(
                        instance=self._instance,
                        worker_id=f"worker-{self._instance}",
                        names=[NAME],
                        limit=AT_ONCE,
                        lease_seconds=60.0,
                        held=[],
                        plain=True,
                    )
                )
            )
            self._tally.claims += 1
            if len(claimed.tasks) == AT_ONCE:
                self._notify_until = 0.0
                await self._run(workers.declare_busy(self._instance, [NAME]))
            if claimed.tasks:
                moment = time.monotonic()
                done = [Completion(task.id, task.version, '{"value":null}', moment, moment) for task in claimed.tasks]
                await self._run(complete_tasks(done))
                self._tally.done += len(done)
            if not claimed.contended and (not claimed.tasks or (claimed.exhausted and self._notify_until)):
                await self._beat()
                await self._wait()

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()

    async def _beat(self) -> None:
        now = time.monotonic()
        if now > self._next_beat:
            self._next_beat = now + self._config.heartbeat_interval_seconds
            await self._run(workers.beat(self._instance, None))
        if now > self._next_count:
            self._next_count = now + self._config.worker_timeout_seconds / 3
            await self._run(workers.look_for_silent())

    async def _wait(self) -> None:
        poll = self._config.poll_interval_seconds
        if not self._pooled and time.monotonic() > self._notify_until - poll:
            notified = await self._run(workers.declare_idle(self._instance, [NAME], IDLE_FOR_SECONDS))
            self._notify_until = time.monotonic() + IDLE_FOR_SECONDS if notified else 0.0
            await self._listen(notified)
            if notified:
                return
        if self._notify_until:
            await self._wait_for_notification(poll)
        else:
            await asyncio.sleep(max(poll, self._fleet / FLEET_LOOKS * random.uniform(0.8, 1.2)))

    async def _listen(self, notified: bool) -> None:
        if notified != self._listens:
            self._listens = notified
            await self._connection.execute((f"LISTEN {self._dialect.channel}" if notified else "UNLISTEN *").encode())

    async def _wait_for_notification(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for notice in self._connection.notifies():
                    if notice.payload in ("new", f"new:{self._instance}"):
                        return

    async def _run(self, operation: Operation[T]) -> T:
        todo = steps(operation, translate, DatabaseClock())
        return await run_awaiting(todo, lambda s: execute_async(self._connection, self._dialect, s))


async def measure(
    server: Server, url: str, schemas: list[str], count: int, rate: int, seconds: float, *, pooled: bool
) -> dict[str, float]:
    """Run `count` workers, spread over the queues, while tasks come in at this rate; returns rates per second."""
    dialects, tally = [PostgresDialect(schema) for schema in schemas], Tally()
    fleet = [
        SimulatedWorker(url, dialects[number % len(schemas)], count // len(schemas), tally, pooled=pooled)
        for number in range(count)
    ]
    for first in range(0, count, 50):
        await asyncio.gather(*(worker.connect() for worker in fleet[first : first + 50]))
    working = [asyncio.ensure_future(worker.work()) for worker in fleet]
    # Workers that asked for notifications at the same moment have drifted apart by then.
    await asyncio.sleep(IDLE_FOR_SECONDS if count > workers.MAX_NOTIFIED and not pooled else 2.0)
    while tally.claims < count:  # noqa: ASYNC110  each has polled once, and their polls are spread out by then
        await asyncio.sleep(0.1)
    waits, before = _slow_locks(server), (tally.claims, tally.done, tree_cpu_seconds(server), time.monotonic())
    await _submit(server.url, schemas, rate, seconds)
    claims, done, cpu, wall = (
        b - a
        for a, b in zip(before, (tally.claims, tally.done, tree_cpu_seconds(server), time.monotonic()), strict=True)
    )
    for each in working:
        each.cancel()
    ends = await asyncio.gather(*working, return_exceptions=True)
    broken = [end for end in ends if isinstance(end, Exception)]
    if broken:
        print(f"{len(broken)} workers gave up, the first with: {broken[0]!r}")
    await asyncio.gather(*(worker.close() for worker in fleet))
    return {
        "done": done / wall,
        "claims": claims / wall,
        "cpu": cpu / wall * 100,
        "waits": _slow_locks(server) - waits,
    }


async def _submit(url: str, schemas: list[str], rate: int, seconds: float) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        begun = time.monotonic()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            table = sql.Identifier(schemas[number % len(schemas)], "tasks")
            await connection.execute(sql.SQL("INSERT INTO {} (name) VALUES (%s)").format(table), (NAME,), prepare=True)


def _slow_locks(server: Server) -> int:
    """How often somebody had waited for a lock for 10 ms, as the server has logged it."""
    return sum(
        file.read_text(errors="replace").count(SLOW_LOCK) for file in server.directory.glob("*log*") if file.is_file()
    )


def server_settings(sessions: int) -> dict[str, str]:
    """A server for so many sessions that logs who has waited for a lock for 10 ms."""
    return {"max_connections": str(sessions + 50), "log_lock_waits": "on", "deadlock_timeout": "10ms"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rate", type=int, default=100, help="tasks a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pgbouncer", type=int, metavar="SESSIONS", help="connect through it, by so many sessions")
    parser.add_argument("--schemas", type=int, default=1, help="queues, each in a schema of its own")


def run(options: argparse.Namespace) -> None:
    """Measure each number of workers and print what they cost."""
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # of the workers that are cancelled at the end
    schemas = [f"{SCHEMA}_{number}" for number in range(options.schemas)]
    settings = server_settings(options.pgbouncer or max(options.workers))
    rows = []
    with ExitStack() as stack:
        server = stack.enter_context(durable_server(options.postgres, settings))
        url, pooled = server.url, options.pgbouncer is not None
        if pooled:
            clients = max(options.workers) + 50
            url = stack.enter_context(pgbouncer(server, sessions=options.pgbouncer, clients=clients))
        for count in options.workers:
            for schema in schemas:
                fresh_schema(server, schema).close()
            found = asyncio.run(measure(server, url, schemas, count, options.rate, options.seconds, pooled=pooled))
            rows.append(
                (
                    f"{count:,}",
                    f"{found['done']:,.0f}",
                    f"{found['claims']:,.0f}",
                    f"{found['cpu']:.0f} %",
                    f"{found['waits']:.0f}",
                )
            )
    show(
        f"{options.rate} tasks a second for {options.seconds:g} s, {len(schemas)} queues"
        + (f", PgBouncer with {options.pgbouncer} sessions" if pooled else ""),
        ("workers", "done/s", "claims/s", "server, of a core", "lock waits > 10 ms"),
        rows,
    )
