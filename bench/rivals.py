"""tasklib beside its rivals, everything in one run: `make bench`, or `python -m bench --quick` in under three minutes.

Each round measures every peer once, one after the other, so that whatever else the machine does hits all of them.
What counts are the ratios of one run, and CPU time; rates swing with the machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import time
from pathlib import Path

from bench import environment
from bench.peer import PEERS, Peer
from bench.place import Places
from bench.plan import WORKLOADS, Workload
from bench.results import Results, markdown, save_plot, show_results
from tools.postgres import available

ROUNDS = 5
QUICK_KEYS = ("P1", "P2", "P4", "P8", "P13d")
SLOW = ("Procrastinate", "Celery", "Dramatiq")


def run(options: argparse.Namespace) -> None:
    """Measure every workload asked for, for every system that can be had here, on each PostgreSQL; print the tables and
    write them to a folder."""
    options.rounds = options.rounds or (2 if options.quick else ROUNDS)
    options.share = options.share or (0.2 if options.quick else 1.0)
    options.only = options.only or (list(QUICK_KEYS) if options.quick else [])
    for line in environment.install():
        print(line)
    versions = sorted(each.version for each in available())
    chosen = options.postgres or ([versions[-1]] if options.quick else sorted({versions[0], versions[-1]}))
    if missing := [version for version in chosen if version not in versions]:
        raise SystemExit(f"PostgreSQL {missing[0]} is not installed here; there is {', '.join(map(str, versions))}")
    options.out.mkdir(parents=True, exist_ok=True)
    for version in chosen:
        file = options.out / f"postgres-{version}.json"
        results = _run(options, version, file)
        show_results(results)
        file.with_suffix(".md").write_text(markdown(results) + "\n")
        save_plot(results, file.with_suffix(".svg"))
        print(f"written: {file}, and the same as .md and .svg")


def _run(options: argparse.Namespace, version: int, file: Path) -> Results:
    """All rounds on one PostgreSQL, saved after each."""
    peers = [peer for peer in PEERS if environment.usable(peer) and _wanted(peer, options)]
    chosen = [each for each in WORKLOADS if not options.only or each.key in options.only]
    results = Results({**_header(peers), "postgres": version})
    with Places(version, redis=any(peer.kind == "redis" for peer in peers)) as places:
        for number in range(options.rounds):
            started = time.monotonic()
            for workload in chosen:
                for peer in (each for each in workload.peers if each in peers):
                    _measure(results, places, workload, peer, options.share)
            seconds = time.monotonic() - started
            print(f"PostgreSQL {version}, round {number + 1} of {options.rounds}: {seconds:.0f} s", flush=True)
            results.save(file)
    return results


def _measure(results: Results, places: Places, workload: Workload, peer: Peer, share: float) -> None:
    """One run; one that fails is said and missing from the medians, and the others go on."""
    try:
        figures = workload.run(places, peer, workload.size(peer, share))
    except RuntimeError as error:
        print(f"{workload.key} {peer.name}: {error}", flush=True)
        return
    if "worker_us" in figures:
        figures["cpu_us"] = figures["worker_us"] + figures["server_us"]
    results.add(workload.key, peer.name, figures)
    print(f"  {workload.key} {peer.name}: {figures[workload.figure]:,.4g}{workload.unit}", flush=True)


def _wanted(peer: Peer, options: argparse.Namespace) -> bool:
    if options.peer:
        return peer.name in options.peer
    return not (options.quick and peer.name in SLOW)


def _header(peers: list[Peer]) -> dict[str, object]:
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": os.getloadavg()[0],
        "peers": [
            {"name": p.name, "version": environment.version(p), "settings": p.settings, "lacks": p.lacks} for p in peers
        ],
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="fewer workloads, tasks and rounds: under 3 minutes")
    parser.add_argument(
        "only", nargs="*", metavar="WORKLOAD", choices=[[], *(each.key for each in WORKLOADS)], help="these alone"
    )
    parser.add_argument("--peer", nargs="+", choices=[each.name for each in PEERS], help="these systems alone")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--share", type=float, help="the share of the full number of tasks")
    parser.add_argument(
        "--postgres", type=int, nargs="+", help="major versions; the oldest and the newest installed if not given"
    )
    parser.add_argument(
        "--out", type=Path, default=environment.HOME / "results", help="the folder for tables, pictures and every run"
    )
