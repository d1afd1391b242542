"""What the simulator does not reach, so that nobody takes it for tested here."""

from __future__ import annotations

import sys
from pathlib import Path

import tasklib.worker
from tests.simulation.seeds import scenario_of
from tests.simulation.world import run

WORKER = Path(tasklib.worker.__file__).parent
SEEDS = (10, 18, 25, 59, 107)
NOT_REACHED = {
    "execution/processes/": "child processes are real processes; tests/integration/worker starts them",
    "execution/copies.py": "processes that a task forks; tests/integration/worker has such tasks",
    "execution/cluster_body.py": "bodies on real clusters, which tests/cluster starts",
    "supervisor/": "worker processes under one command are real processes too",
    "messages.py": "what a supervisor and its worker processes write to each other",
    "service_manager.py": "datagrams to systemd; tests/integration/worker has a socket for them",
    "embedded.py": "the worker of a web application; tests/integration starts one with its lifespan",
    "execution/dependencies.py": "what functions ask for with Depends: nothing that faults of the fleet could reach",
    "workflows/effects.py": "only names of what is asked for; it has no function",
    "workflows/replay.py": "tries code against what was recorded, and changes nothing",
    "workflows/step_threads.py": "steps that are plain functions of a coroutine run in real threads",
    "execution/running_table.py": "memory that a worker shares with its supervisor",
}
"""Modules, or folders of modules, in which no seed calls a function, each with the reason."""


def test_every_other_module_of_the_worker_is_reached():
    called: set[str] = set()

    def note(frame, event, argument):
        called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        for seed in SEEDS:
            run(scenario_of(seed))
    finally:
        sys.setprofile(None)
    missed = {
        str(module.relative_to(WORKER))
        for module in WORKER.rglob("*.py")
        if str(module) not in called and module.name != "__init__.py"
    }
    assert {each for each in missed if not each.startswith(tuple(NOT_REACHED))} == set()
    assert [reason for reason in NOT_REACHED if not any(each.startswith(reason) for each in missed)] == []
