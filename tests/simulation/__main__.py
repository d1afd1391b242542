"""Tries seeds: `make simulate SEEDS=200`, or one of them with its whole history: `make simulate SEED=17`.

python -m tests.simulation [--seeds N] [--from N] [--processes N]
python -m tests.simulation --seed N [--keep NAME --what TEXT]
python -m tests.simulation --kept NAME
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time

from tests.simulation import corpus
from tests.simulation.scenario import Scenario
from tests.simulation.seeds import scenario_of
from tests.simulation.shrink import shrink
from tests.simulation.world import run


def main() -> int:
    """Run what was asked for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to try")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="show the history of this one")
    parser.add_argument("--kept", help="show the history of this scenario of the corpus")
    parser.add_argument("--keep", help="put the seed, made small, into the corpus under this name")
    parser.add_argument("--what", default="", help="what was wrong, for the corpus")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.keep is not None:
        return _keep(asked.seed, asked.keep, asked.what)
    if asked.kept is not None:
        return _show(corpus.load_all()[asked.kept].scenario)
    if asked.seed is not None:
        return _show(scenario_of(asked.seed))
    return _try(asked.first, asked.seeds, asked.processes)


def _show(scenario: Scenario) -> int:
    outcome = run(scenario)
    print(scenario.describe(), "\n".join(outcome.history.lines), sep="\n\n")
    print(
        f"\nseed {scenario.seed}: {outcome.steps} steps in {outcome.seconds:.0f} virtual seconds, "
        f"{outcome.history.digest}"
    )
    if not outcome.violations:
        return 0
    _report(scenario)
    return 1


def _keep(seed: int, name: str, what: str) -> int:
    outcome = shrink(scenario_of(seed))
    if not outcome.violations:
        print(f"seed {seed} breaks no promise: what should be kept of it?", file=sys.stderr)
        return 1
    print(corpus.keep(name, corpus.Kept(what or outcome.violations[0], outcome.scenario)))
    return 0


def _try(first: int, count: int, processes: int) -> int:
    began, virtual, failed = time.perf_counter(), 0.0, 0
    with multiprocessing.Pool(processes) as pool:
        for seed, seconds, violation in pool.imap(_one, range(first, first + count), chunksize=5):
            virtual += seconds
            if violation is not None:
                failed += 1
                print(f"seed {seed}: {violation}", flush=True)
                if failed == 1:
                    _report(scenario_of(seed))
    took = time.perf_counter() - began
    print(f"{count} seeds, {virtual / 3600:.1f} virtual hours in {took:.0f} s: {failed} failed")
    return 1 if failed else 0


def _one(seed: int) -> tuple[int, float, str | None]:
    outcome = run(scenario_of(seed))
    return seed, outcome.seconds, outcome.violations[0] if outcome.violations else None


def _report(scenario: Scenario) -> None:
    """The smallest history found that fails too."""
    print(shrink(scenario).report, f"\nReplay: make simulate SEED={scenario.seed}", sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
