"""Durable agents: every model request and tool call of a pydantic-ai agent is a step of a workflow.

    from pydantic_ai import Agent
    from tasklib.contrib.pydantic_ai import TasklibDurability

    agent = Agent("openai:gpt-5.2", name="planner", capabilities=[TasklibDurability()])

    @queue.task(max_retries=5)
    async def plan(ctx: AsyncTaskContext, goal: str) -> str:
        return (await agent.run(goal)).output

Inside a task the agent resumes after a crash, a failure or a wait where it was: what a model or a tool has answered is
recorded, and is not asked again.  Outside of a task the agent is as it was.

Needs the packages of the extra `pydantic-ai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.contrib.late import public_names

if TYPE_CHECKING:
    from tasklib.contrib.pydantic_ai.durability import StepConfig as StepConfig
    from tasklib.contrib.pydantic_ai.durability import TasklibDurability as TasklibDurability

__all__ = ["StepConfig", "TasklibDurability"]

__getattr__, __dir__ = public_names(
    __name__,
    {"StepConfig": "durability", "TasklibDurability": "durability"},
    "pydantic_ai",
    "tasklib-queue[pydantic-ai]",
)
