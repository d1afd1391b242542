"""Which run each seed stands for."""

from __future__ import annotations

from tests.simulation.plots import workflow_scenario
from tests.simulation.scenario import Scenario, task_scenario


def scenario_of(seed: int) -> Scenario:
    """The run that a seed stands for: every third is one of workflows."""
    return workflow_scenario(seed) if seed % 3 == 2 else task_scenario(seed)
