"""Flows: tasks that run after others, with their results as arguments; stored together."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast, overload
from uuid import UUID

from tasklib.core.calls.current import transaction_here
from tasklib.core.member_ids import member_id
from tasklib.core.task import NewTask
from tasklib.core.task_id import TaskId
from tasklib.errors import ConfigurationError
from tasklib.queue.base import QueueBase
from tasklib.queue.results import TaskResults
from tasklib.queue.sync_async import require_asyncio
from tasklib.storage.operations.workflows.groups import store_flow
from tasklib.storage.operations.workflows.marks import MEMBER
from tasklib.submission.flow_rows import MOST_NODES, RUN_IF, FlowRows, FlowTask, RunIf, check_run_if, flow_rows
from tasklib.submission.function import BoundTask, NodeResult

R = TypeVar("R")


class MakesFlows(QueueBase):
    """Flows of this queue."""

    def flow(self, name: str) -> Flow:
        """A flow to which tasks are added, and which is submitted as a whole.

        Examples:
            >>> flow = queue.flow("sums")
            >>> one, two = flow.add(add.bind(1, 2)), flow.add(add.bind(3, 4))
            >>> both = flow.add(add.bind(one.result, two.result))
            >>> ids = flow.submit()
            >>> while queue.process_batch():
            ...     pass
            >>> both.id.wait()
            10
        """
        return Flow(self, name)


class Node(Generic[R]):
    """A task of a flow.

    Examples:
        >>> flow = queue.flow("sums")
        >>> one = flow.add(add.bind(1, 2))
        >>> one
        <Node 'add' of flow 'sums'>
    """

    def __init__(
        self, flow: Flow, call: BoundTask[R], before: Sequence[tuple[Node[Any], str | None]], run_if: RunIf
    ) -> None:
        self.flow = flow
        self.call = call
        self.before = before
        """The tasks before it, each with the argument that its result becomes."""
        self.run_if: RunIf = run_if
        self.id: TaskId[R] = TaskId(call.new.id)
        """The task's id, also before it is submitted; `id.wait()` gives its result."""
        self.id.made_by(flow.results)

    @property
    def result(self) -> R:
        """Stands for what the task will return: given as an argument to another, it makes that wait for this one.

        Examples:
            >>> flow = queue.flow("sums")
            >>> one = flow.add(add.bind(1, 2))
            >>> other = flow.add(add.bind(one.result))  # waits for the first
        """
        return cast("R", NodeResult(self))

    def __repr__(self) -> str:
        return f"<Node {self.call.new.name!r} of flow {self.flow.name!r}>"


class Flow:
    """Tasks that run after others; made by `queue.flow(name)`.

    Examples:
        >>> flow = queue.flow("nightly")
        >>> first = flow.add(divide.bind(1, 0))
        >>> then = flow.add(add.bind(1), after=[first])
        >>> alert = flow.add(add.bind(2), after=[first], run_if="failure")
        >>> ids = flow.submit()
        >>> while queue.process_batch():
        ...     pass
        >>> [queue.get(task_id).state.value for task_id in ids]
        ['failed', 'cancelled', 'completed']
    """

    def __init__(self, queue: QueueBase, name: str) -> None:
        if not _is_name(name):
            raise ConfigurationError(f"a flow's name is a text of 1 to 200 characters, got {name!r}")
        self.name = name
        self.results: Final = TaskResults(queue)
        """Whom the ids of its tasks ask for their results."""
        self._queue = queue
        self._nodes: list[Node[Any]] = []
        self._is_stored = False

    # The result of an `async def` is what it returns when it is awaited: the first form unwraps it.
    @overload
    def add(
        self, call: BoundTask[Coroutine[Any, Any, R]], *, after: Iterable[Node[Any]] = (), run_if: RunIf = "success"
    ) -> Node[R]: ...
    @overload
    def add(self, call: BoundTask[R], *, after: Iterable[Node[Any]] = (), run_if: RunIf = "success") -> Node[R]: ...
    def add(self, call: BoundTask[Any], *, after: Iterable[Node[Any]] = (), run_if: RunIf = "success") -> Node[Any]:
        """Add a task that runs when those whose results it takes, and those of `after`, have ended.

        `run_if` says how: `success` all of them, `failure` at least one not, `end` whatever became of them.  A task
        that may not run is cancelled, and its error says what was skipped and why.

        Examples:
            >>> flow = queue.flow("nightly")
            >>> first = flow.add(add.options(priority=5).bind(1))
            >>> second = flow.add(add.bind(first.result), run_if="success")
        """
        if not isinstance(call, BoundTask):
            raise ConfigurationError(f"flow.add takes task.bind(...), got {call!r}")
        if self._is_stored:
            raise ConfigurationError(f"the flow {self.name!r} is submitted already; make another: queue.flow(...)")
        if run_if not in RUN_IF:
            raise ConfigurationError(f"run_if is one of {', '.join(RUN_IF)}, got {run_if!r}")
        if len(self._nodes) >= MOST_NODES:
            raise ConfigurationError(f"a flow has at most {MOST_NODES:,} tasks")
        if call.new.unique_key is not None:
            raise ConfigurationError(f"task {call.new.name!r} has a unique key, which a task of a flow cannot have")
        if isinstance(after, Node):
            raise ConfigurationError(f"after= takes a list of tasks of the flow, got {after!r}; write after=[...]")
        before: list[tuple[Any, str | None]] = [(each.node, param) for param, each in call.results.items()]
        before += [(each, None) for each in after]
        for each, _ in before:
            if not isinstance(each, Node) or each.flow is not self:
                raise ConfigurationError(f"{each!r} is no task of the flow {self.name!r}; add it first")
        check_run_if(call.new.name, run_if, has_before=bool(before))
        node = Node(self, call, before, run_if)
        self._nodes.append(node)
        return node

    def submit(self, *, connection: Any = None) -> list[TaskId[Any]]:
        """Store all tasks in one transaction, or in the caller's; their ids, in the order in which they were added.

        Examples:
            >>> flow = queue.flow("nightly")
            >>> node = flow.add(add.bind(1))
            >>> flow.submit() == [node.id]
            True
        """
        database, make = self._queue.database, self._storing()
        joined = transaction_here(connection, database)
        if joined is None:
            database.run(make)
        else:
            database.run_on(joined, make)
        self._is_stored = True
        return [node.id for node in self._nodes]

    async def asubmit(self, *, connection: Any = None) -> list[TaskId[Any]]:
        """The awaiting form of `submit`."""
        require_asyncio()
        database, make = self._queue.database, self._storing()
        joined = transaction_here(connection, database)
        if joined is None:
            await database.arun(make)
        else:
            await database.arun_on(joined, make)
        self._is_stored = True
        return [node.id for node in self._nodes]

    def require_tasks(self) -> None:
        """ConfigurationError if nothing was added to it."""
        if not self._nodes:
            raise ConfigurationError(f"the flow {self.name!r} has no tasks; add some with flow.add(task.bind(...))")

    def as_children(self, group: str, priority: int) -> FlowRows:
        """The rows of the flow as children of a workflow: each with an id of its own, however often the flow is run."""
        new = {
            node.id: replace(
                node.call.new, id=member_id(UUID(group), index), priority=node.call.new.priority or priority
            )
            for index, node in enumerate(self._nodes)
        }
        rows = self._rows(new)
        children = [dict(row) | {"marks": row["marks"] | MEMBER} for row in rows.tasks]
        return FlowRows(children, rows.after, rows.edges)

    def _storing(self) -> Any:
        self.require_tasks()
        rows = self._rows({node.id: node.call.new for node in self._nodes})
        return partial(store_flow, rows.tasks, rows.after, rows.edges)

    def _rows(self, new: Mapping[TaskId[Any], NewTask]) -> FlowRows:
        tasks = [
            FlowTask(new[node.id], [(new[each.id], param) for each, param in node.before], node.run_if)
            for node in self._nodes
        ]
        return flow_rows(self.name, tasks)

    def __repr__(self) -> str:
        return f"<Flow {self.name!r} of {len(self._nodes)} tasks>"


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200
