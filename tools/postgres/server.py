"""A running server: its address, and the ways to end it, gently or not."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import psutil

from tools.postgres.account import popen
from tools.postgres.installations import Installation

StopMode = Literal["fast", "immediate"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


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
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.halt()
        # A new postmaster refuses to start while one of the old backends still holds the shared memory.
        while any(map(_is_running, processes)):
            time.sleep(0.001)

    def restart(self, mode: StopMode = "fast") -> None:
        """Bring the server up again on the same port and data, ending it first if it still runs."""
        self.halt(mode)
        with open(self.directory / "log", "ab") as log:
            self.process = popen(self.command, self.directory, log)
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
            lines: list[str] = []
            with suppress(FileNotFoundError):
                lines = pid_file.read_text().splitlines()
            # A crash leaves the old file behind, so the pid has to be the new one.
            if len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready":
                return
            if self.process is not None and self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"PostgreSQL {self.installation.version} did not start; its log ends:\n{self.log[-2000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_running(process: psutil.Process) -> bool:
    """False also for a process that has ended and that nobody has collected yet."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
