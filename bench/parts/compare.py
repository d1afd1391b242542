"""This tree beside a commit, by turns: the median of the pairs' ratios with its confidence interval.

python -m bench compare --commit 48ef561 --only P4 P6 P6p --rounds 12

A round measures both, one right after the other, and the next round in the other order, so that whatever else the
machine does hits both alike.  Fails if this tree is slower, or costs more CPU, beyond the noise.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from dataclasses import replace
from math import comb
from pathlib import Path

from bench.environment import HOME, ROOT
from bench.peer import TASKLIB, TASKLIB_SQLITE, Peer
from bench.place import Places
from bench.plan import WORKLOADS, Workload
from bench.report import middle, save, show
from bench.workloads import Figures

CONFIDENCE = 0.95
NOISE = 0.02
"""Differences below this are not looked at, however sure they are."""
MORE_IS_BETTER = ("per_second", "bulk_per_second")
COMPARED = (*MORE_IS_BETTER, "cpu_us", "worker_us", "server_us", "producer_us", "p50_ms", "p99_ms")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commit", required=True, help="what to compare with: anything that git can name")
    parser.add_argument("--only", nargs="+", metavar="WORKLOAD", default=["P4", "P6", "P6p"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.3, help="the share of the full number of tasks")
    parser.add_argument("--json", type=Path, help="write every run to this file")


def run(options: argparse.Namespace) -> bool:
    """Measure both by turns and print a table for each workload; False if this tree is slower beyond the noise."""
    source = unpack(options.commit)
    chosen = [each for each in WORKLOADS if each.key in options.only]
    runs: dict[str, list[tuple[Figures, Figures]]] = {each.key: [] for each in chosen}
    with Places(options.postgres, redis=False) as places:
        for number in range(options.rounds):
            started = time.monotonic()
            for workload in chosen:
                runs[workload.key].append(_pair(places, workload, source, options.share, swapped=number % 2 == 1))
            print(f"round {number + 1} of {options.rounds}: {time.monotonic() - started:.0f} s", flush=True)
            save(options.json, {"commit": options.commit, "runs": runs})
    shown = [_show(workload, runs[workload.key], options.commit) for workload in chosen]
    return all(shown)


def unpack(commit: str) -> Path:
    """The tree of a commit, its package and its bench, under `.bench/commits/`."""
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"git knows no commit {commit!r} here")
    folder = HOME / "commits" / found.stdout.strip()
    if not folder.exists():
        asked = ["git", "archive", commit, "src", "bench"]
        packed = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True)
        folder.mkdir(parents=True)
        # Python's own unpacking warns from 3.12 on without a filter, which early versions of 3.11 do not have.
        subprocess.run(["tar", "-x", "-f", "-", "-C", folder], input=packed.stdout, check=True)
    return folder


def interval(ratios: list[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Between which of the ratios their true median lies, however they are distributed; None if they are too few."""
    ordered, count = sorted(ratios), len(ratios)
    outside, tail = 0, 0.0
    while (tail := tail + comb(count, outside) / 2**count) <= (1 - confidence) / 2:
        outside += 1
    return (ordered[outside - 1], ordered[count - outside]) if outside else None


def _pair(places: Places, workload: Workload, source: Path, share: float, *, swapped: bool) -> tuple[Figures, Figures]:
    """One run of the commit and one of this tree, in this order unless they are swapped."""
    own = next(peer for peer in workload.peers if peer in (TASKLIB, TASKLIB_SQLITE))
    other = replace(own, source=str(source))
    if swapped:
        new = _measure(places, workload, own, share)
        return _measure(places, workload, other, share), new
    return _measure(places, workload, other, share), _measure(places, workload, own, share)


def _measure(places: Places, workload: Workload, peer: Peer, share: float) -> Figures:
    figures = workload.run(places, peer, workload.size(peer, share))
    if "worker_us" in figures:
        figures["cpu_us"] = figures["worker_us"] + figures["server_us"]
    return figures


def _show(workload: Workload, pairs: list[tuple[Figures, Figures]], commit: str) -> bool:
    rows, fine = [], True
    for figure in (each for each in COMPARED if each in pairs[0][0] and pairs[0][0][each]):
        ratios = [new[figure] / old[figure] for old, new in pairs]
        between = interval(ratios)
        worse = is_worse(figure, between)
        # Rates swing with the machine, and percentiles more: CPU time decides, and the workload's own figure.
        fine &= not (worse and figure in (workload.figure, "cpu_us"))
        rows.append(
            (
                figure.replace("_", " "),
                f"{middle([old[figure] for old, _ in pairs]):,.1f}",
                f"{middle([new[figure] for _, new in pairs]):,.1f}",
                f"{middle(ratios):.3f}",
                f"{between[0]:.3f} to {between[1]:.3f}" if between else "too few rounds",
                "worse" if worse else "",
            )
        )
    columns = ("", commit, "here", "here : it", f"{CONFIDENCE:.0%} interval", "")
    show(f"{workload.key}: {workload.title}, {len(pairs)} pairs", columns, rows)
    return fine


def is_worse(figure: str, between: tuple[float, float] | None) -> bool:
    """Whether even the better end of the interval is worse, by more than is worth a look."""
    if between is None:
        return False
    return between[1] < 1 - NOISE if figure in MORE_IS_BETTER else between[0] > 1 + NOISE
