"""Where peers keep their tasks: a fresh database of one durable server, a fresh file, or an empty Redis."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg
from psycopg.sql import SQL, Identifier

from bench.environment import redis_program, redis_variables
from bench.peer import Peer
from bench.server import durable_server, tree_cpu_seconds
from tools.postgres import Server
from tools.postgres.starting import free_port

DATABASE = "bench"


class Places:
    """The servers of one run."""

    def __init__(self, version: int | None, *, redis: bool) -> None:
        self.version = version
        self._server = durable_server(version)
        self._folder = tempfile.TemporaryDirectory(prefix="tasklib-bench-")
        self._wants_redis = redis
        self.redis: subprocess.Popen[bytes] | None = None
        self.postgres: Server

    def __enter__(self) -> Self:
        self.postgres = self._server.__enter__()
        if self._wants_redis:
            self._start_redis()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.redis is not None:
            self.redis.kill()
            self.redis.wait()
        self._server.__exit__(kind, error, trace)
        self._folder.cleanup()

    @contextmanager
    def fresh(self, peer: Peer) -> Iterator[str]:
        """The address of an empty place, which is gone afterwards."""
        if peer.kind == "postgres":
            self._admin("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            self._admin("CREATE DATABASE {}")
            try:
                yield self.address
            finally:
                self._admin("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        elif peer.kind == "sqlite":
            with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
                file = f"{folder}/tasks.db"
                yield (f"sqlite:///{file}" if peer.program == "tasklib" else file) + peer.suffix
        else:
            with socket.create_connection(("127.0.0.1", self.redis_port)) as connection:
                connection.sendall(b"FLUSHALL\r\n")
                connection.recv(64)
            yield f"redis://127.0.0.1:{self.redis_port}/0"

    @property
    def address(self) -> str:
        """The database of the PostgreSQL peer that is measured now."""
        return self.postgres.url.rpartition("/")[0] + f"/{DATABASE}"

    def server_cpu(self, peer: Peer) -> float:
        """Seconds of CPU that the peer's server has used; SQLite has none."""
        if peer.kind == "postgres":
            return tree_cpu_seconds(self.postgres)
        if peer.kind == "redis" and self.redis is not None:
            times = psutil.Process(self.redis.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def wal(self, peer: Peer) -> float:
        """Bytes of log that PostgreSQL has written."""
        if peer.kind != "postgres":
            return 0.0
        with psycopg.connect(self.address, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return float(row[0])

    def analyze(self, peer: Peer) -> None:
        """Give the planner the statistics it would have a minute later."""
        if peer.kind == "postgres":
            with psycopg.connect(self.address, autocommit=True) as connection:
                connection.execute("ANALYZE")

    def _admin(self, text: str) -> None:
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(SQL(text).format(Identifier(DATABASE)))  # type: ignore[arg-type]

    def _start_redis(self) -> None:
        self.redis_port = free_port()
        options = [
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.redis_port),
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
        ]
        self.redis = subprocess.Popen(
            [str(redis_program()), *options, "--dir", str(Path(self._folder.name))],
            env=redis_variables(),
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.redis_port)):
                return
            time.sleep(0.05)
        raise RuntimeError("Redis did not start")
