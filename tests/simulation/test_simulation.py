"""Random histories of faults, each from one seed; `make simulate` tries more of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.corpus import load_all
from tests.simulation.seeds import scenario_of
from tests.simulation.shrink import shrink
from tests.simulation.world import run

CORPUS = load_all()
SEEDS = 200
GROUP = 20


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_no_seed_breaks_a_promise(first):
    for seed in range(first, first + GROUP):
        _require_kept(seed)


@pytest.mark.parametrize("name", CORPUS)
def test_what_failed_once_does_not_fail_again(name):
    outcome = run(CORPUS[name].scenario)
    if outcome.violations:
        pytest.fail(f"{CORPUS[name].what}, again?\n\n{outcome.report}", pytrace=False)


def test_a_seed_has_one_history():
    first, second = run(scenario_of(3)), run(scenario_of(3))
    assert first.history.lines == second.history.lines
    assert len(first.history.lines) > 100


def test_a_seed_has_one_history_in_every_process():
    assert _shown(hash_seed=1) == _shown(hash_seed=2)


def _shown(hash_seed):
    """What `make simulate SEED=56` prints, where sets of texts are in an order of their own."""
    shown = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "56"],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout


def _require_kept(seed):
    if run(scenario_of(seed)).violations:
        pytest.fail(shrink(scenario_of(seed)).report, pytrace=False)
