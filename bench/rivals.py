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
from bench.results import Results, save_plot, show_results

ROUNDS = 5
QUICK_KEYS = ("P1", "P2", "P4", "P8", "P13d")
SLOW = ("Procrastinate", "Celery", "Dramatiq")


def run(options: argparse.Namespace) -> None:
    """Measure every workload asked for, for every system that can be had here, and print the tables."""
    options.rounds = options.rounds or (2 if options.quick else ROUNDS)
    options.share = options.share or (0.2 if options.quick else 1.0)
    options.only = options.only or (list(QUICK_KEYS) if options.quick else [])
    for line in environment.install():
        print(line)
    peers = [peer for peer in PEERS if environment.usable(peer) and _wanted(peer, options)]
    chosen = [each for each in WORKLOADS if not options.only or each.key in options.only]
    results = Results(_header(peers))
    with Places(options.postgres, redis=any(peer.kind == "redis" for peer in peers)) as places:
        results.header["postgres"] = places.postgres.installation.version
        for number in range(options.rounds):
            started = time.monotonic()
            for workload in chosen:
                for peer in (each for each in workload.peers if each in peers):
                    _measure(results, places, workload, peer, options.share)
            print(f"round {number + 1} of {options.rounds}: {time.monotonic() - started:.0f} s", flush=True)
            if options.json:
                results.save(options.json)
    show_results(results)
    if options.plot:
        save_plot(results, options.plot)


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
    parser.add_argument("--plot", type=Path, help="write a picture of the rates (SVG) to this file")
    parser.add_argument("--json", type=Path, help="write every run to this file")
