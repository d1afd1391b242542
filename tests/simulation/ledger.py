"""What workflows really did: which steps ran where, what their code saw, and what others told them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasklib import Task
from tests.simulation.loop import CURRENT, Process

if TYPE_CHECKING:
    from tests.simulation.truth import Execution

StepOf = tuple[str, int, str]
"""A task, which of its lives, and the key of a step."""


@dataclass(slots=True)
class StepRun:
    """One call of a step's function."""

    number: int
    task_id: str
    version: int
    is_first: bool
    process: Process
    returned: bool = False


@dataclass(slots=True)
class Ledger:
    """The part of the truth that is about workflows; no simulated fault reaches it."""

    runs: list[StepRun] = field(default_factory=list)
    seen: dict[StepOf, Any] = field(default_factory=dict)
    """What the code was given for each step that did not fail."""
    started: dict[str, int] = field(default_factory=dict)
    """The version under which each story began first."""
    steps_begun: set[StepOf] = field(default_factory=set)
    gave: dict[str, Any] = field(default_factory=dict)
    """What tasks of flows were given."""
    on_step: Callable[[StepRun, StepOf], None] = lambda *_: None
    on_sleep: Callable[[str, str, float], None] = lambda *_: None
    on_group: Callable[[str, Any, int], None] = lambda *_: None
    broken: Callable[[str], None] = lambda *_: None

    def is_first(self, execution: Execution) -> bool:
        """Whether this is the first attempt at the task."""
        return self.started.setdefault(execution.task_id, execution.version) == execution.version

    def begin_step(self, task: Task, life: int, key: str) -> StepRun:
        """Note that the function of a step is called."""
        process = CURRENT.get()
        assert process is not None
        step = (str(task.id), life, key)
        run = StepRun(len(self.runs), step[0], task.version, step not in self.steps_begun, process)
        self.runs.append(run)
        self.steps_begun.add(step)
        self.on_step(run, step)
        return run

    def saw(self, execution: Execution, life: int, key: str, what: str, value: Any) -> None:
        """Note what the code was given: live and replayed it is the same."""
        step = (execution.task_id, life, f"{what}:{key}")
        if what in ("pause", "raise_once", "kill_once", "sleep"):
            return
        before = self.seen.setdefault(step, value)
        if before != value:
            self.broken(f"{what} {key} of {execution.task_id[-6:]} gave {before!r}, and now {value!r}")

    def slept(self, execution: Execution, key: str, seconds: float) -> None:
        """A sleep is over."""
        self.on_sleep(execution.task_id, key, seconds)

    def gathered(self, execution: Execution, group: Any, wanted: int) -> None:
        """All children have ended, as the workflow was told."""
        self.on_group(execution.task_id, group, wanted)

    def given(self, task_id: str, value: Any) -> None:
        """A task of a flow runs, with this argument."""
        self.gave[task_id] = value
