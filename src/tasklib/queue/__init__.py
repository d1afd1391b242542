"""TaskQueue, one module for each thing it can do."""

from tasklib.core.task_id import require_id
from tasklib.queue.arguments import Filters, Id, check_states, task_filter
from tasklib.queue.methods.acting import ActsOnTasks
from tasklib.queue.methods.controlling import ControlsTasks
from tasklib.queue.methods.defining import DefinesTasks, define
from tasklib.queue.methods.emitting import EmitsEvents
from tasklib.queue.methods.flows import MakesFlows
from tasklib.queue.methods.objectives import HasObjectives
from tasklib.queue.methods.reading import ReadsTasks
from tasklib.queue.methods.scheduling import KeepsSchedules
from tasklib.queue.methods.working import RunsTasks

__all__ = ["Filters", "Id", "TaskQueue", "check_states", "define", "require_id", "task_filter"]


class TaskQueue(
    DefinesTasks,
    KeepsSchedules,
    ReadsTasks,
    ActsOnTasks,
    ControlsTasks,
    HasObjectives,
    EmitsEvents,
    MakesFlows,
    RunsTasks,
):
    """A queue of durable tasks in one database.

    Every database operation has an awaiting form with an `a` in front: `get` and `aget`, `cancel` and `acancel`.

    Examples:
        >>> queue = TaskQueue("sqlite:///:memory:")  # or "sqlite:///tasks.db", "postgresql://localhost/app", a Config
        >>> @queue.task
        ... def greet(name: str) -> str:
        ...     return f"Hello {name}"
        >>> task_id = greet.submit("Ada")
        >>> queue.process_batch()  # in production a worker does it: tasklib worker app
        1
        >>> task_id.wait()
        'Hello Ada'
    """
