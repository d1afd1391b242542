"""Reading tasks and workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

from tasklib.core.insights.explain import Explanation
from tasklib.core.insights.explain import explain as explain_evidence
from tasklib.core.queue_info import QueueStats, WorkerInfo
from tasklib.core.redaction import Redactor
from tasklib.core.task import Task
from tasklib.core.task_id import require_id
from tasklib.queue.arguments import Filters, Id, check_position, check_whole, task_filter
from tasklib.queue.base import QueueBase
from tasklib.queue.sync_async import operation, require_asyncio
from tasklib.queue.wait_for_end import wait_async, wait_blocking
from tasklib.storage.operations import statistics, tasks, workers
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.reading.explain import gather_evidence
from tasklib.storage.operations.workflows.steps import StepInfo, list_steps
from tasklib.storage.statement import Operation

Tasks = list[Task]


class ReadsTasks(QueueBase):
    """One task, many, counts, and why one is not running."""

    @operation
    def get(self, task_id: Id) -> Operation[Task | None]:
        """The task with this id, or None; InvalidTaskId if what is given cannot be one.

        Examples:
            >>> task_id = add.submit(1, 2)
            >>> task = queue.get(task_id)
            >>> task.state, task.kwargs
            (<TaskState.PENDING: 'pending'>, {'a': 1, 'b': 2})
        """
        return (yield from tasks.get_task(require_id(task_id)))

    aget = get.as_async

    @operation
    def list(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        limit: int = 100,
        offset: int = 0,
        before: Task | None = None,
        **filters: Unpack[Filters],
    ) -> Operation[Tasks]:
        """Tasks matching the filters, newest first; `before` continues after the last task of a page.

        Examples:
            >>> for number in range(3):
            ...     task_id = add.options(tags={"batch": "daily"}).submit(number)
            >>> page = queue.list(state="pending", tags={"batch": "daily"}, limit=2)
            >>> [task.kwargs["a"] for task in page]
            [2, 1]
            >>> [task.kwargs["a"] for task in queue.list(before=page[-1])]
            [0]
        """
        which = task_filter(state, name, filters)
        position = check_position(before)
        limit, offset = check_whole("limit", limit), check_whole("offset", offset)
        return (yield from lists.list_tasks(which, limit=limit, offset=offset, before=position))

    alist = list.as_async

    @operation
    def count(
        self, *, state: str | Iterable[str] | None = None, name: str | None = None, **filters: Unpack[Filters]
    ) -> Operation[int]:
        """How many tasks match the filters.

        Examples:
            >>> ids = add.submit_many({"a": number} for number in range(1000))
            >>> queue.count(name="add", state="pending")
            1000
        """
        return (yield from lists.count_tasks(task_filter(state, name, filters)))

    acount = count.as_async

    @operation
    def stats(self) -> Operation[QueueStats]:
        """How many tasks are in each state, in all and by name.

        Examples:
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            1
            >>> queue.stats().completed, queue.stats().pending
            (1, 0)
        """
        return (yield from statistics.count_tasks_by_state())

    astats = stats.as_async

    def wait(self, task_id: Id, timeout: float | None = None) -> Task:
        """The finished task, once it is; WaitTimeout if that takes longer than `timeout` seconds.

        Examples:
            >>> task_id = add.submit(1, 2)
            >>> queue.process_batch()
            1
            >>> task = queue.wait(task_id, timeout=10)
            >>> task.state.value, task.result, len(task.history)
            ('completed', {'value': 3}, 1)
        """
        return wait_blocking(self, require_id(task_id), timeout)

    async def await_(self, task_id: Id, timeout: float | None = None) -> Task:
        """The awaiting form of `wait`."""
        require_asyncio()
        return await wait_async(self, require_id(task_id), timeout)

    @operation
    def workers(self) -> Operation[Sequence[WorkerInfo]]:
        """Every known worker instance, the one with the latest heartbeat first.

        Examples:
            >>> [(worker.id, worker.last_heartbeat) for worker in queue.workers()]
            []
        """
        return (yield from workers.list_workers())

    aworkers = workers.as_async

    @operation
    def explain(self, task_id: Id) -> Operation[Explanation]:
        """Why the task is not running: every reason with its evidence and remedy, the most binding first.

        Examples:
            >>> task_id = add.options(delay_seconds=3600).submit(1)
            >>> print(queue.explain(task_id).reasons[0].code)
            delayed
        """
        found = explain_evidence((yield from gather_evidence(require_id(task_id))))
        yield from self.secret_places.learn()
        return Redactor(self.config.redact_keys, self.secret_places.of).explanation(found)

    aexplain = explain.as_async

    @operation
    def steps(self, task_id: Id) -> Operation[Sequence[StepInfo]]:
        """The records of a workflow and what it waits for, in order; empty for other tasks.

        Values are as they are stored, as those of `get` are.

        Examples:
            >>> @queue.task(context=True)
            ... def fulfil(ctx: TaskContext, order: int) -> int:
            ...     return ctx.step(abs, -order)
            >>> task_id = fulfil.submit(42)
            >>> queue.process_batch()
            1
            >>> [(step.key, step.kind, step.state, step.value) for step in queue.steps(task_id)]
            [('abs', 'step', 'done', 42)]
        """
        task = yield from tasks.require_task(require_id(task_id))
        return (yield from list_steps(task.id))

    asteps = steps.as_async
