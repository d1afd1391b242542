"""Making a failing scenario small: whatever can be taken out of it while it still fails is taken out."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.link import CALM
from tests.simulation.scenario import Scenario
from tests.simulation.world import Outcome, run

PARTS = ("faults", "acts", "schedules", "remote_workers", "emissions", "flows", "submissions", "workers")
MOST_RUNS = 400


def shrink(scenario: Scenario) -> Outcome:
    """The outcome of the smallest scenario found that still breaks a promise."""
    smallest = run(scenario)
    runs = 0
    went_on = bool(smallest.violations)
    while went_on and runs < MOST_RUNS:
        went_on = False
        for candidate in _smaller(smallest.scenario):
            runs += 1
            outcome = run(candidate)
            if outcome.violations:
                smallest, went_on = outcome, True
                break
    return smallest


def _smaller(scenario: Scenario) -> list[Scenario]:
    """Every scenario with a part less, the largest cuts first."""
    found = []
    for part in PARTS:
        elements = getattr(scenario, part)
        if len(elements) > 2 and part != "workers":
            half = len(elements) // 2
            found += [replace(scenario, **{part: elements[half:]}), replace(scenario, **{part: elements[:half]})]
    if scenario.weather != CALM:
        found.append(replace(scenario, weather=CALM))
    for part in PARTS:
        count = len(getattr(scenario, part))
        least = 1 if part == "workers" else 0
        found += [scenario.without(part, position) for position in range(count) if count > least]
    return found
