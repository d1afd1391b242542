"""The service behind every front end, blocking and awaiting."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tasklib import ConfigurationError, InvalidTransition, TaskNotFound, TaskQueue
from tasklib.core.lifecycle import Action
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import TaskState
from tasklib.service.service import QueueService


class Form:
    """Calls the blocking or the awaiting form of a method of the service by its name."""

    def __init__(self, service: QueueService, *, awaiting: bool) -> None:
        self._service = service
        self._awaiting = awaiting

    async def __call__(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        part, _, name = method.rpartition(".")
        target = getattr(self._service, part) if part else self._service
        if not self._awaiting:
            return getattr(target, name)(*args, **kwargs)
        answer: Awaitable[Any] = getattr(target, f"a{name}")(*args, **kwargs)
        return await answer


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as queue:
        yield queue


@pytest.fixture(params=["blocking", "awaiting"])
def service(queue: TaskQueue, request: pytest.FixtureRequest) -> Form:
    return Form(QueueService(queue), awaiting=request.param == "awaiting")


async def test_pages(service: Form, queue: TaskQueue) -> None:
    ids = [queue.enqueue("job") for _ in range(3)][::-1]
    first = await service("page", TaskFilter(), limit=2)
    second = await service("page", TaskFilter(), limit=2, before=first.next)
    assert [task.id for task in (*first.tasks, *second.tasks)] == ids
    assert (first.next, second.next) == (ids[1], None)
    assert (await service("page", TaskFilter(name="other"))).tasks == ()


async def test_one_task(service: Form, queue: TaskQueue) -> None:
    task_id = queue.enqueue("job")
    assert (await service("get", str(task_id))).id == task_id
    for missing in ("nonsense", "0199f1e2-7c3a-7000-8000-000000000000"):
        with pytest.raises(TaskNotFound):
            await service("get", missing)


async def test_actions_give_the_task_as_it_is_then(service: Form, queue: TaskQueue) -> None:
    task_id = queue.enqueue("job")
    with pytest.raises(InvalidTransition):
        await service("act", Action.DELETE, task_id)
    assert (await service("act", Action.CANCEL, task_id)).state == "cancelled"
    assert (await service("act", Action.RETRY, task_id)).state == "pending"
    await service("act", Action.CANCEL, task_id)
    assert (await service("act", Action.DELETE, task_id)).state == "cancelled"
    assert queue.get(task_id) is None


async def test_bulk_actions_count_what_they_would_change(service: Form, queue: TaskQueue) -> None:
    for _ in range(3):
        queue.enqueue("job")
    everything = TaskFilter()
    assert await service("act_on_matching", Action.PRIORITIZE, everything, priority=4) == 3
    assert await service("act_on_matching", Action.CANCEL, everything, dry_run=True) == 3
    assert await service("act_on_matching", Action.CANCEL, everything) == 3
    assert await service("act_on_matching", Action.RETRY, everything) == 0
    cancelled = TaskFilter(states=("cancelled",))
    assert await service("act_on_matching", Action.RETRY, cancelled) == 3
    assert await service("act_on_matching", Action.DELETE, everything, dry_run=True) == 0
    with pytest.raises(ConfigurationError, match="delete is not possible for pending tasks"):
        await service("act_on_matching", Action.DELETE, TaskFilter(states=("pending",)))
    with pytest.raises(ConfigurationError, match="prioritize needs a priority"):
        await service("act_on_matching", Action.PRIORITIZE, everything)


async def test_cleanup(service: Form, queue: TaskQueue) -> None:
    queue.cancel(queue.enqueue("job"))
    states = [TaskState.CANCELLED]
    assert await service("cleanup", timedelta(hours=1), states) == 0
    assert await service("cleanup", timedelta(hours=-1), states, dry_run=True) == 1
    assert await service("cleanup", timedelta(hours=-1), states, name="other") == 0
    assert await service("cleanup", timedelta(hours=-1), states) == 1
    assert queue.count() == 0


async def test_numbers(service: Form, queue: TaskQueue) -> None:
    queue.enqueue("a")
    queue.enqueue("b", delay_seconds=100)
    queue.pause("a", reason="why not")
    overview = await service("statistics.overview")
    assert (overview.stats.total, overview.workers_alive) == (2, 0)
    assert [(pause.name, pause.reason) for pause in overview.pauses] == [("a", "why not")]
    a, b = await service("statistics.types")
    assert (a.name, a.pending, a.delayed, a.paused) == ("a", 1, 0, True)
    assert (b.name, b.pending, b.delayed, b.paused) == ("b", 1, 1, False)
