"""The engine of one run of a workflow's function: all its logic, and how the run ends.

Everything here is logic without I/O, written as generators (`effects.py`); `drivers.py` carries it out.  A call gets
its key when it is made, not when it is awaited.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.core.lifecycle import Ending
from tasklib.worker.workflows.effects import Suspend
from tasklib.worker.workflows.flow_children import FlowLogic
from tasklib.worker.workflows.steps import StepLogic
from tasklib.worker.workflows.waits import WaitLogic


class Engine(StepLogic, WaitLogic, FlowLogic):
    """The state of one attempt at a workflow, with the logic of every call that its function can make."""

    def suspend(self, waits: Sequence[Suspend]) -> None:
        """Decide that the attempt is suspended for these waits; the earliest deadline counts."""
        on = tuple(each.key for each in waits if each.fillable)
        deadlines = [each.seconds for each in waits if each.seconds is not None]
        self.suspension = Ending.suspend(
            self.task.id,
            self.task.version,
            waits_for=self._to_show(waits[0].waits_for),
            delay=min(deadlines, default=None),
            on=on,
            unasked=self._unasked_waits() if on else (),
        )
