"""Agents of pydantic-ai as workflows: what a model or a tool has answered is not asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tasklib import AsyncTaskContext, ConfigurationError, Task, TaskQueue
from tasklib.contrib.pydantic_ai import StepConfig, TasklibDurability
from tasklib.testing import TestTasks, isolated

queue = TaskQueue("postgresql://nobody@nowhere.invalid/production")
asked: list[str] = []
called: list[str] = []


def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for two tools at once, then for one more, then answers."""
    turn = sum(isinstance(each, ModelResponse) for each in messages)
    asked.append(f"turn {turn}")
    if turn == 0:
        return ModelResponse(
            [ToolCallPart("look", {"where": "oslo"}, "c1"), ToolCallPart("look", {"where": "bergen"}, "c2")]
        )
    if turn == 1:
        return ModelResponse([ToolCallPart("book", {"where": "oslo"}, "c3")])
    return ModelResponse([TextPart("booked oslo")])


agent = Agent(FunctionModel(answers), name="traveller", capabilities=[TasklibDurability(tool=StepConfig(retries=1))])
careful = Agent(
    FunctionModel(answers),
    name="careful",
    output_type=[str, DeferredToolRequests],
    capabilities=[TasklibDurability()],
)
tester = Agent(TestModel(custom_output_text="tested"), name="tester", capabilities=[TasklibDurability()])


@agent.tool
async def look(ctx: RunContext[object], where: str) -> str:
    called.append(f"look {where}")
    await asyncio.sleep(0)
    return f"sunny in {where}"


@agent.tool_plain(metadata={"tasklib": StepConfig(timeout_seconds=5)})
def book(where: str) -> str:
    called.append(f"book {where}")
    if called.count(f"book {where}") == 1 and "flaky" in called:
        raise OSError("once")
    return f"seat in {where}"


@careful.tool_plain(name="look")
def look_around(where: str) -> str:
    return f"sunny in {where}"


@careful.tool_plain(name="book", requires_approval=True)
def book_if_approved(where: str) -> str:
    called.append(f"book {where}")
    return f"seat in {where}"


@tester.tool_plain
def note(text: str) -> str:
    called.append(text)
    return text


@queue.task(context=True, max_retries=3)
async def travel(ctx: AsyncTaskContext, crashes: bool = False) -> str:
    result = await agent.run("somewhere warm")
    if crashes and ctx.attempt == 1:
        raise OSError("the worker died")
    again = await agent.run("once more", message_history=result.all_messages())
    return f"{result.output}, {again.output}"


@queue.task(context=True, max_retries=0)
async def ask_first(ctx: AsyncTaskContext) -> str:
    result = await careful.run("somewhere warm")
    while isinstance(result.output, DeferredToolRequests):
        decided = DeferredToolResults()
        for call in result.output.approvals:
            question = f"Run {call.tool_name} {call.args_as_dict()}?"
            is_fine = await ctx.options(key=call.tool_call_id).wait("approval", bool, ask=question)
            decided.approvals[call.tool_call_id] = True if is_fine else ToolDenied("a person said no")
        result = await careful.run(message_history=result.all_messages(), deferred_tool_results=decided)
    return str(result.output)


@queue.task(max_retries=0)
async def try_it() -> str:
    return (await tester.run("go")).output


@pytest.fixture
def tasks() -> Iterator[TestTasks]:
    asked.clear()
    called.clear()
    with isolated(queue) as tasks:
        yield tasks


def found(task_id: UUID) -> Task:
    task = queue.get(task_id)
    assert task is not None
    return task


WHOLE = ["turn 0", "turn 1", "turn 2", "turn 3"]


def test_an_agent_that_dies_resumes_and_asks_nothing_again(tasks: TestTasks) -> None:
    task_id = travel.submit(crashes=True)
    tasks.drain(advance=True)
    task = found(task_id)
    assert (task.result, [each.outcome for each in task.history]) == (
        {"value": "booked oslo, booked oslo"},
        ["failed", "completed"],
    )
    assert asked == WHOLE
    assert sorted(called) == ["book oslo", "look bergen", "look oslo"]


def test_it_begins_anew_after_every_step_and_ends_the_same(tasks: TestTasks) -> None:
    task_id = travel.submit()
    with tasks.restart_after_each_step():
        tasks.drain(advance=True)
    assert found(task_id).result == {"value": "booked oslo, booked oslo"}
    assert asked == WHOLE
    assert sorted(called) == ["book oslo", "look bergen", "look oslo"]


def test_a_tool_that_fails_is_tried_again_as_its_step_says(tasks: TestTasks) -> None:
    called.append("flaky")
    task_id = travel.submit()
    tasks.work(60)
    assert found(task_id).result == {"value": "booked oslo, booked oslo"}
    assert called.count("book oslo") == 2
    assert asked == WHOLE


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_approves_a_call_while_nothing_runs(tasks: TestTasks, answer: bool) -> None:
    task_id = ask_first.submit()
    tasks.drain()
    assert (found(task_id).waits_for, called) == ("answer approval:c3", [])
    queue.answer(task_id, "approval:c3", answer)
    tasks.drain()
    assert found(task_id).result == {"value": "booked oslo"}
    assert called == (["book oslo"] if answer else [])
    assert asked == ["turn 0", "turn 1", "turn 2"]


def test_the_test_model_works_and_steps_have_names_that_stay(tasks: TestTasks) -> None:
    task_id = try_it.submit()
    with tasks.restart_after_each_step():
        tasks.drain(advance=True)
    assert (found(task_id).result, called) == ({"value": "tested"}, ["a"])
    from tasklib.service.service import QueueService

    names = [step.key.partition(":")[0] for step in QueueService(queue).workflows.steps(task_id)]
    assert names == [
        "tester__model.request",
        "tester__function_toolset__<agent>.call_tool",
        "tester__model.request",
    ]


def test_outside_of_a_task_the_agent_is_as_it_was() -> None:
    called.clear()
    assert asyncio.run(tester.run("go")).output == "tested"
    assert called == ["a"]


def test_what_is_no_option_of_a_step_is_refused() -> None:
    wrong: Any = {"retry": 3}
    with pytest.raises(ConfigurationError, match="retries, delay_seconds, timeout_seconds"):
        TasklibDurability(model=wrong)
