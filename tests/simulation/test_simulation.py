"""Random histories of faults, each from one seed; `make simulate` tries more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.scenario import scenario_of
from tests.simulation.shrink import shrink
from tests.simulation.world import run

CORPUS = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "corpus.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
SEEDS = 200
GROUP = 20


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_no_seed_breaks_a_promise(first):
    for seed in range(first, first + GROUP):
        _require_kept(seed)


@pytest.mark.parametrize("seed", CORPUS)
def test_what_failed_once_does_not_fail_again(seed):
    _require_kept(seed)


@pytest.mark.parametrize("seed", [3, 56])
def test_a_seed_has_one_history(seed):
    first, second = run(scenario_of(seed)), run(scenario_of(seed))
    assert first.history.lines == second.history.lines
    assert len(first.history.lines) > 100


def _require_kept(seed):
    if run(scenario_of(seed)).violations:
        pytest.fail(shrink(scenario_of(seed)).report, pytrace=False)
