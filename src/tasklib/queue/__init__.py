"""TaskQueue, one module for each thing it can do."""

from tasklib.queue.acting import ActsOnTasks
from tasklib.queue.arguments import Filters, Id, require_id, task_filter
from tasklib.queue.controlling import ControlsTasks
from tasklib.queue.defining import DefinesTasks, define
from tasklib.queue.flows import MakesFlows
from tasklib.queue.reading import ReadsTasks
from tasklib.queue.scheduling import KeepsSchedules
from tasklib.queue.telling import TellsWorkflows
from tasklib.queue.working import RunsTasks

__all__ = ["Filters", "Id", "TaskQueue", "define", "require_id", "task_filter"]


class TaskQueue(
    DefinesTasks, KeepsSchedules, ReadsTasks, ActsOnTasks, ControlsTasks, TellsWorkflows, MakesFlows, RunsTasks
):
    """A queue of durable tasks in one database.

    Every database operation has an awaiting form with an `a` in front: `get` and `aget`, `cancel` and `acancel`.
    """
