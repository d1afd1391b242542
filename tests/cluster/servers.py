"""The servers of a cluster as processes of their own, so that a test can kill its head and start it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import psutil

from tools.postgres.starting import free_port


class Servers(Protocol):
    """A cluster of one engine on this machine, at an address that stays the same."""

    engine: str
    address: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None:
        """Start all, or all anew after the head was killed."""

    def kill_head(self) -> None:
        """Kill what clients and nodes are connected to; the nodes go on."""


def servers_of(engine: str, folder: Path) -> Servers:
    return DaskServers(folder) if engine == "dask" else RayServers(folder)


class DaskServers:
    """A scheduler and a Dask worker."""

    engine = "dask"

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self.address = f"tcp://127.0.0.1:{self._port}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def start(self) -> None:
        """A new scheduler, and another Dask worker."""
        self._run("dask_scheduler", "--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard")
        self._run("dask_worker", self.address, "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny")

    def kill_head(self) -> None:
        """Kill the scheduler."""
        self._processes[-2].kill()
        self._processes[-2].wait()

    def _run(self, module: str, *options: str) -> None:
        with open(self._folder / f"{module}-{len(self._processes)}.log", "wb") as log:
            command = [sys.executable, "-m", f"distributed.cli.{module}", *options]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder))


class RayServers:
    """The head of a cluster, and its node with two CPUs; they are daemons, known by the folder in their arguments."""

    engine = "ray"

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._log = folder / "ray.log"
        self._folder = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self) -> None:
        """What is left of the old cluster ends: its node would wait a minute for its head."""
        self._end()
        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # Paths of Ray's sockets must be short.
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats"]
        command += [f"--port={self._port}", "--num-cpus=2", f"--temp-dir={self._folder}"]
        command += ["--include-dashboard=false", "--dashboard-agent-listen-port=0"]
        with open(self._log, "ab") as log:
            environment = os.environ | {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
            subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)

    def kill_head(self) -> None:
        """Kill the process that knows the cluster; the bodies on its node go on."""
        head = next(each for each in self._processes() if each.name() == "gcs_server")
        head.kill()
        psutil.wait_procs([head])

    def _end(self) -> None:
        if self._folder:
            killed = list(self._processes())
            for process in killed:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(killed)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(self._folder in word for word in process.cmdline()):
                    yield process
