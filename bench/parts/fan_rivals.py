"""Fan-out and fan-in beside Celery's chord, flows of BullMQ and pg-boss, and DBOS.

    python -m bench fan_rivals
    python -m bench fan_rivals --children 500 --rounds 1

From the call that starts it to the first line of what comes after all children, with workers that are ready.  Each
system has its own two or more processes or all in one, as its documentation recommends; CPU is that of all of them and
of the server.  A system that has not ended after `--seconds` is said not to have.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench import environment
from bench.peer import Peer
from bench.place import Places
from bench.programs import cpu_of_tree
from bench.report import save, show

PEERS = (
    Peer("tasklib", "fan_tasklib", "postgres", "tasklib", 0, "map", ""),
    Peer("DBOS", "fan_dbos", "postgres", "dbos", 0, "a queue polled every 0.1 s", ""),
    Peer("pg-boss", "fan_pgboss.mjs", "postgres", "pg-boss", 0, "flow, resolved every second", ""),
    Peer("Celery", "fan_celery", "redis", "celery", 0, "chord, 2 prefork processes", ""),
    Peer("BullMQ", "fan_bullmq.mjs", "redis", "bullmq", 0, "flow, 100 at once", ""),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one system."""

    seconds: float
    cpu: float


def fan(places: Places, peer: Peer, children: int, seconds: float) -> Run | None:
    """Run it once; None if it did not end."""
    with places.fresh(peer) as address:
        before = places.server_cpu(peer)
        process = subprocess.Popen(
            [*environment.command(peer), "run", address, str(children)],
            cwd=environment.folder(peer),
            env=environment.variables(peer),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        used, reported = 0.0, ""
        over = threading.Timer(seconds, _end, [process])
        over.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    reported, used = line, cpu_of_tree(process.pid)
                    break
        finally:
            over.cancel()
            server = places.server_cpu(peer) - before
            _end(process)
        return Run(json.loads(reported)["seconds"], used + server) if reported else None


def _end(process: subprocess.Popen[str]) -> None:
    try:
        tree = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        tree = []
    for each in [process, *tree]:
        each.kill()
    process.wait()


def run(options: argparse.Namespace) -> None:
    for line in environment.install():
        print(line)
    peers = [peer for peer in PEERS if environment.usable(peer)]
    found: dict[str, list[Run]] = {peer.name: [] for peer in peers}
    with Places(options.postgres, redis=any(peer.kind == "redis" for peer in peers)) as places:
        for _ in range(options.rounds):
            for peer in peers:
                if (ran := fan(places, peer, options.children, options.seconds)) is not None:
                    found[peer.name].append(ran)
    rows = []
    for peer in peers:
        runs, count = found[peer.name], options.children
        figures = ["did not end", ""]
        if runs:
            each = median(one.cpu for one in runs) / count * 1e6
            figures = [f"{count / median(one.seconds for one in runs):,.0f}", f"{each:,.0f}"]
        rows.append([peer.name, environment.version(peer), peer.settings, *figures])
    title = f"{options.children:,} children and what comes after them, {options.rounds} rounds by turns"
    show(title, ["", "version", "settings", "children/s", "µs of CPU each"], rows)
    save(options.save, {name: [[one.seconds, one.cpu] for one in runs] for name, runs in found.items()})


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--children", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="for one run of one system at most")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
