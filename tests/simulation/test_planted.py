"""The simulator can fail: with a safeguard taken out of the code, it says so within a few seeds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.planted import BUGS, SYMPTOMS
from tests.simulation.scenario import Fault, FlowPlan
from tests.simulation.seeds import scenario_of
from tests.simulation.world import run

SEEDS = 200


@pytest.mark.chaos
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    with BUGS[bug]():
        symptom = SYMPTOMS.get(bug, "")
        found = next((seed for seed in range(SEEDS) if _has(seed, symptom)), None)
    assert found is not None, f"{SEEDS} seeds do not notice: {bug}"


def test_the_page_about_them_knows_them():
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    assert f"{len(BUGS)} in all" in page
    (table,) = re.findall(r"\| what goes wrong \|.*\n\|-.*\n((?:\|.*\n)+)", page)
    shown = [line.split("|")[2].strip() for line in table.splitlines()]
    assert [bug for bug in shown if bug not in BUGS] == []


def _has(seed, symptom):
    return any(symptom in violation for violation in run(scenario_of(seed)).violations)


@pytest.mark.parametrize("bug", ["a release counts as an attempt", "a retry is counted twice"])
def test_a_planted_bug_is_found_at_once(bug):
    with BUGS[bug]():
        assert any(run(scenario_of(seed)).violations for seed in range(10))


@pytest.mark.parametrize(
    "mistake",
    [
        {"faults": (Fault(1.0, "misspelt"),)},
        {"flows": (FlowPlan(1.0, (["ok", 0.0, [], "misspelt", None],)),)},
    ],
    ids=lambda mistake: next(iter(mistake)),
)
def test_a_part_of_the_simulator_that_raises_is_found(mistake):
    violations = run(replace(scenario_of(2), **mistake)).violations
    assert any("nobody has handled" in violation and "misspelt" in violation for violation in violations)
