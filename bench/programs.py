"""Running a peer's programs: producers to their end, workers until they are done; and what they report."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import psutil

from bench.environment import command, folder, variables
from bench.peer import Peer


def produce(peer: Peer, what: str, address: str, count: int = 0) -> dict[str, Any]:
    """Run a producer to its end; its last report."""
    done = subprocess.run(
        [*command(peer), what, address, str(count)],
        cwd=folder(peer),
        env=variables(peer),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{peer.name} {what} failed: {done.stderr[-2000:]}")
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return reported[-1] if reported else {}


@dataclass(slots=True)
class Workers:
    """Worker processes of one peer, and how far they are."""

    peer: Peer
    address: str
    count: int = 1
    kind: str = ""
    tick_seconds: float = 0.02
    """How often they report their progress: while nothing runs, that alone would be most of what they do."""
    latencies: list[float] = field(default_factory=list)
    _ran: dict[int, int] = field(default_factory=dict)
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        what = "work" + (f":{self.kind}" if self.kind else "")
        for _ in range(self.count):
            process = subprocess.Popen(
                [*command(self.peer), what, self.address],
                cwd=folder(self.peer),
                env=variables(self.peer) | {"BENCH_TICK_SECONDS": str(self.tick_seconds)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._started.append(process)
            threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            for each in self._tree(process):
                each.kill()
            process.wait()

    @property
    def ran(self) -> int:
        """Tasks whose handler was called."""
        return sum(self._ran.values())

    def wait(self, count: int, seconds: float = 120.0) -> None:
        """Until so many handlers were called."""
        deadline = time.monotonic() + seconds
        while self.ran < count:
            if time.monotonic() > deadline or any(p.poll() is not None for p in self._started):
                raise RuntimeError(f"{self.peer.name} ran {self.ran:,} of {count:,} tasks and no more")
            time.sleep(0.005)

    def cpu(self) -> float:
        """Seconds of CPU they have used, their children included."""
        return sum(_cpu(each) for process in self._started for each in self._tree(process))

    def memory(self) -> float:
        """MiB that they hold."""
        trees = [each for process in self._started for each in self._tree(process)]
        return sum(float(each.memory_info().rss) for each in trees) / 2**20

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                reported = json.loads(line)
                if "ran" in reported:
                    self._ran[reported["pid"]] = reported["ran"]
                if "latency" in reported:
                    self.latencies.append(reported["latency"])

    @staticmethod
    def _tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
        return _tree(process.pid)


def cpu_of_tree(pid: int) -> float:
    """Seconds of CPU that a process and its children have used."""
    return sum(map(_cpu, _tree(pid)))


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
