"""The tools of an agent: methods whose docstrings the agent reads as their descriptions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from tasklib.core.lifecycle import Action
from tasklib.core.queue_info import TaskFilter
from tasklib.doctor import examine
from tasklib.errors import ConfigurationError, TaskLibError
from tasklib.mcp.access import AgentAccess
from tasklib.mcp.shown import answer, brief, explained
from tasklib.service.service import QueueService

State = Literal["pending", "delayed", "running", "completed", "failed", "retrying", "cancelled", "buried"]
Limit = Annotated[int, Field(ge=1, le=50, description="How many at most, 1 to 50.")]
TaskIdText = Annotated[str, Field(description="The id of a task, or its first characters.")]
TypeText = Annotated[str | None, Field(description="Only tasks of this type (its full name).")]
Answer = dict[str, Any]


class _Tools:
    def __init__(self, service: QueueService, access: AgentAccess) -> None:
        self.service = service
        self.access = access

    async def _find_id(self, text: str) -> Any:
        return await asyncio.to_thread(self.service.find_id, text)


class ReadTools(_Tools):
    """The tools that change nothing; every agent has them all."""

    def all(self) -> list[Callable[..., Any]]:
        """Every one of them."""
        return [
            self.queue_stats,
            self.list_tasks,
            self.show_task,
            self.explain_task,
            self.list_types,
            self.list_errors,
            self.list_workers,
            self.list_schedules,
            self.doctor,
        ]

    async def queue_stats(self) -> Answer:
        """How many tasks are in each state, which types are paused, and how many workers are alive."""
        return answer(await self.service.statistics.aoverview())

    async def list_tasks(
        self,
        type: TypeText = None,
        state: Annotated[State | None, Field(description="Only tasks in this state.")] = None,
        search: Annotated[str | None, Field(description="Only tasks whose input, tags or error has this text.")] = None,
        limit: Limit = 20,
    ) -> Answer:
        """Tasks, newest first, in brief. Use show_task for one of them.

        A search finds what is shown, never a hidden secret; in a large queue it covers the newest part: `searched`.
        """
        which = TaskFilter(states=(state,) if state else (), name=type, search=search)
        found = await self.service.alisting(which, limit=limit)
        data: Answer = {"tasks": [brief(each) for each in found.tasks], "more": found.next is not None}
        return answer(data if found.looked is None else {**data, "searched": round(found.looked, 4)})

    async def show_task(self, id: TaskIdText) -> Answer:
        """Everything about one task: input, result, error, past attempts and log lines. Secrets are hidden."""
        return answer(await self.service.aget(await self._find_id(id)))

    async def explain_task(self, id: TaskIdText) -> Answer:
        """Why a task is not running: the reasons in order, each with its evidence."""
        return answer(explained(await self.service.aexplain(await self._find_id(id))))

    async def list_types(self) -> Answer:
        """Every type of task: how many in each state, live workers, paused or not, oldest due task."""
        oldest = await self.service.statistics.aoldest_by_type()
        types = await self.service.statistics.atypes()
        return answer({"types": list(types), "oldest_due": oldest})

    async def list_errors(self, type: TypeText = None, limit: Limit = 20) -> Answer:
        """Failures grouped by what was raised and where, the latest first, each with an example task."""
        return answer({"groups": list(await self.service.error_groups.aall(type, limit=limit))})

    async def list_workers(self) -> Answer:
        """Workers: alive or not, their host, their types, and their last heartbeat."""
        return answer({"workers": list(await self.service.queue.aworkers())})

    async def list_schedules(self) -> Answer:
        """Schedules: when each runs next, paused or not, and its last error."""
        return answer({"schedules": list(await self.service.schedules.aall())})

    async def doctor(self) -> Answer:
        """What is wrong with the queue, its database and its workers, each finding with its remedy."""
        config = self.service.queue.config
        if config.database_url.endswith(":memory:"):
            raise ConfigurationError("a queue in memory cannot be examined from outside; use a file or PostgreSQL")
        return answer({"findings": await asyncio.to_thread(examine, config)})


class WriteTools(_Tools):
    """The tools that change the queue; an agent has those that its access allows."""

    def all(self) -> list[Callable[..., Any]]:
        """Those that the access allows."""
        allowed: list[Callable[..., Any]] = []
        if self.access.writes:
            allowed += [self.retry_task, self.cancel_task, self.pause, self.resume]
        if self.access.submit:
            allowed.append(self.submit_task)
        return allowed

    async def retry_task(self, id: TaskIdText) -> Answer:
        """Run a failed, cancelled or buried task again, from zero attempts."""
        return await self._act(Action.RETRY, id)

    async def cancel_task(self, id: TaskIdText) -> Answer:
        """Cancel a task: at once if it waits; if it runs, it is asked to stop."""
        return await self._act(Action.CANCEL, id)

    async def pause(
        self, type: Annotated[str, Field(description="The type to pause.")], reason: str | None = None
    ) -> Answer:
        """Let no more tasks of a type start, on all workers, until resume. Running tasks finish."""
        audit = self.access.audit("pause", type, {"reason": reason})
        await self.service.achange(audit, self.service.queue.pause, type, by=self.access.actor, reason=reason)
        return answer({"paused": type})

    async def resume(self, type: Annotated[str, Field(description="The type to resume.")]) -> Answer:
        """Let tasks of a paused type start again."""
        was = await self.service.achange(self.access.audit("resume", type, {}), self.service.queue.resume, type)
        return answer({"resumed": type, "was_paused": was})

    async def submit_task(
        self,
        type: Annotated[str, Field(description="The type, which must be on the allow-list.")],
        payload: Annotated[dict[str, Any], Field(description="Its arguments by name.")],
    ) -> Answer:
        """Submit a task of an allowed type; answers with its id."""
        if not self.access.may_submit(type):
            raise ConfigurationError(
                f"type {type!r} may not be submitted here; allowed: {', '.join(self.access.submit)}"
            )
        wait = self.access.submission_wait()
        if wait:
            raise TaskLibError(f"this caller submits faster than the service allows; try again in {math.ceil(wait)} s")
        entry = self.access.audit("create_task", type, {})
        task_id = await self.service.asubmit(type, payload, audit=entry)
        return answer({"id": task_id})

    async def _act(self, action: Action, text: str) -> Answer:
        task_id = await self._find_id(text)
        entry = self.access.audit(f"{action.value}_task", str(task_id), {})
        return answer(brief(await self.service.aact(action, task_id, audit=entry)))
