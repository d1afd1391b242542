"""A primary and a standby that take turns, each on a port of its own, so that one URL names both for ever.

from tools.postgres.pair import Pair
with Pair(available()[0]) as pair:
    psycopg.connect(pair.url)
    pair.fail_over()      # the primary is killed, the standby takes over
    pair.rejoin()         # what was killed follows the new primary, with its data

Copies are made by PostgreSQL's own interface for backups, because the wheels do not bring `pg_basebackup`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg

from tools.postgres import account
from tools.postgres.installations import Installation
from tools.postgres.server import Server
from tools.postgres.starting import free_port, start

SETTINGS = {
    "wal_keep_size": "512MB",
    "hot_standby": "on",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
}
LEFT_OUT = ("postmaster.pid", "postmaster.opts", "standby.signal", "backup_label", "postgresql.auto.conf")
"""Files of the running original that a copy must not have."""
PATIENCE = 60.0


class Pair:
    """Two servers: one takes writes, the other receives everything it commits, before it acknowledges or soon after."""

    def __init__(self, installation: Installation, *, synchronous: bool = True) -> None:
        self.synchronous = synchronous
        self._installation = installation
        self._old: Server | None = None
        """The last primary, until it follows the new one."""
        self._was_killed = False
        self.ports = [free_port(), free_port()]
        self.primary = start(installation, durable=True, port=self.ports[0], settings=SETTINGS)
        try:
            self.standby: Server | None = self._copy()
            self._expect_standby()
        except BaseException:
            self.primary.stop("immediate")
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._old, self.standby, self.primary):
            if server is not None:
                server.stop("immediate")

    @property
    def url(self) -> str:
        """Names both servers; whoever connects gets the one that accepts writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill every process of the primary at once; the standby takes its place."""
        self.primary.crash()
        self._was_killed = True
        self.promote()

    def switch_over(self) -> None:
        """Stop the primary in order, which sends its last commits first; the standby takes its place."""
        self.primary.halt("fast")
        self._was_killed = False
        self.promote()

    def cut_off_standby(self) -> None:
        """From here on nothing reaches the standby: it is halted, and started again only to take over."""
        assert self.standby is not None
        self.standby.halt()

    def promote(self) -> None:
        """The standby accepts writes when this returns; the old primary's data stays until `rejoin`."""
        assert self.standby is not None
        if self.standby.process is None:
            self.standby.restart()
        with connect(self.standby) as connection:
            assert connection.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)
        self._old, self.primary, self.standby = self.primary, self.standby, None

    def rejoin(self) -> None:
        """The old primary follows the new one: with the data it has if it was stopped in order, else with a copy."""
        old, self._old = self._old, None
        assert old is not None
        if self._was_killed:
            old.stop("immediate")
            self.standby = self._copy(old.port)
        else:
            _follow(old.data, self.primary)
            old.restart()
            self.standby = old
        self._expect_standby()

    def wait_in_step(self) -> None:
        """Return when the standby has everything that was committed when this was called."""
        with connect(self.primary) as connection:
            position = _value(connection, "SELECT pg_current_wal_lsn()")
            reached = "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= %s"
            _wait(lambda: connection.execute(reached, (position,)).fetchone() == (1,), "the standby is in step")

    def _copy(self, port: int | None = None) -> Server:
        """A running standby on this port, the second if not given."""

        def fill(_: Path, directory: Path) -> None:
            (directory / "log").touch()
            copy_data(self.primary, directory / "data")
            _follow(directory / "data", self.primary)

        return start(
            self._installation, durable=True, port=port or self.ports[1], settings=SETTINGS, directory=None, fill=fill
        )

    def _expect_standby(self) -> None:
        """Return when the standby has everything committed so far, and, if synchronous, every commit waits for it."""
        with connect(self.primary) as connection:

            def state() -> Any:
                return connection.execute("SELECT state, sync_state FROM pg_stat_replication").fetchone()

            _wait(lambda: state() is not None and state()[0] == "streaming", "the standby follows")
            if self.synchronous:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")
                _wait(lambda: state() is not None and state()[1] == "sync", "the standby is synchronous")
                # The checkpointer is the process that makes commits wait; it reads its settings before it does this.
                connection.execute("CHECKPOINT")
                # Returns when the standby has this commit, and so all before it.
                connection.execute("SELECT pg_logical_emit_message(true, 'pair', 'in step')")


def copy_data(server: Server, target: Path) -> None:
    """A copy of the data of a running server, from which another can start."""
    with connect(server) as connection:
        connection.execute("SELECT pg_backup_start('copy', fast => true)")
        shutil.copytree(server.data, target, ignore=_left_out, copy_function=_copy_file)
        label = _value(connection, "SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)")
    (target / "backup_label").write_text(label)
    target.chmod(0o700)
    for path in (target, *target.rglob("*")):
        account.give(path)


def connect(server: Server) -> psycopg.Connection[Any]:
    """A connection to one server of the two, whatever its part."""
    return psycopg.connect(server.url, autocommit=True, connect_timeout=10)


def _value(connection: psycopg.Connection[Any], query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def _follow(data: Path, primary: Server) -> None:
    """Start as a standby of the primary, without settings of the original's own."""
    conninfo = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
    for name, text in (("postgresql.auto.conf", f"primary_conninfo = '{conninfo}'\n"), ("standby.signal", "")):
        (data / name).write_text(text)
        account.give(data / name)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """The log arrives by streaming, so that of the original is not copied."""
    if Path(folder).name == "pg_wal":
        return {name for name in names if name not in ("archive_status", "summaries")}
    return set(names) & set(LEFT_OUT)


def _copy_file(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # removed meanwhile, which the log says too
        shutil.copyfile(source, target)


def _wait(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {PATIENCE:g} s in vain: {what}")
        time.sleep(0.01)
