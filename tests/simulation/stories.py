"""The workflows that simulated workers run: each does the steps that its story says, and notes what it saw of them."""

from __future__ import annotations

import asyncio
from typing import Any

from tasklib import AsyncTaskContext, ConfigurationError, StepFailed, TaskFailed, WaitTimeout, current_context
from tasklib.definition import Registry
from tests.simulation.bodies import Stage, act, queue
from tests.simulation.loop import CURRENT
from tests.simulation.truth import Execution

BUDGET, RATE, BURST = "tokens", 2.0, 6.0
"""The budget that stories spend from: tokens in a second, and how many it holds."""
Op = list[Any]


@queue.task(name="story", max_retries=4)
async def story(ops: list[Op], careful: bool, ctx: AsyncTaskContext, life: int = 0) -> int:
    """Do what the story says, one after the other."""
    with Stage.truth.executing(ctx.task) as execution:
        teller = Teller(ctx, execution, life, careful)
        for number, op in enumerate(ops):
            if op[0] == "restart":
                raise story.restart(ops=ops[number + 1 :], careful=careful, life=life + 1)
            await teller.do(str(number), op)
        return execution.number


@queue.task(name="child", max_retries=2)
async def child(behaviour: str, seconds: float, ctx: AsyncTaskContext) -> int:
    """A task that a story waits for."""
    with Stage.truth.executing(ctx.task) as execution:
        await act(behaviour, seconds, ctx, execution)
        return execution.number


@queue.task(name="node", max_retries=2)
async def node(behaviour: str, seconds: float, ctx: AsyncTaskContext, given: int | None = None) -> int:
    """A task of a flow; it may be given the result of one before it."""
    with Stage.truth.executing(ctx.task) as execution:
        Stage.truth.workflows.given(str(ctx.task.id), given)
        await act(behaviour, seconds, ctx, execution)
        return execution.number


class Teller:
    """One run of a story."""

    def __init__(self, ctx: AsyncTaskContext, execution: Execution, life: int, careful: bool) -> None:
        self._ctx = ctx
        self._execution = execution
        self._life = life
        self._careful = careful
        self._ledger = Stage.truth.workflows

    async def do(self, key: str, op: Op) -> None:
        """One thing of a story; a careful story goes on when it fails."""
        what, *rest = op
        if what == "at once":
            await asyncio.gather(*[self.do(f"{key}.{number}", each) for number, each in enumerate(rest)])
            return
        try:
            value = await getattr(self, f"_{what}")(key, *rest)
        except (StepFailed, TaskFailed, WaitTimeout):
            if not self._careful:
                raise
        except (TypeError, ConfigurationError) as error:
            self._ledger.broken(f"{what} {key} cannot be done: {error!r}")
            raise
        else:
            self._ledger.saw(self._execution, self._life, key, what, value)

    async def _step(self, key: str, seconds: float, behaviour: str, retries: int = 0) -> int:
        options = self._ctx.options(name="step", key=key, retries=retries, delay_seconds=1.0)
        return await options.step(work, self._life, key, seconds, behaviour)

    async def _effect(self, key: str, seconds: float) -> int:
        options = self._ctx.options(name="effect", key=key, transactional=True)
        return await options.step(write, self._life, key, seconds)

    async def _sleep(self, key: str, seconds: float) -> None:
        await self._ctx.options(name="sleep", key=key).sleep(seconds)
        self._ledger.slept(self._execution, f"sleep:{key}", seconds)

    async def _wait(self, key: str, facts: list[str], timeout: float | None) -> Any:
        return await self._ctx.options(name="wait", key=key).wait(tuple(facts), Any, timeout_seconds=timeout)

    async def _take(self, key: str, name: str, timeout: float | None) -> Any:
        return await self._ctx.options(name="take", key=key).wait(name, Any, timeout_seconds=timeout)

    async def _ask(self, key: str, timeout: float | None) -> Any:
        return await self._ctx.options(name="ask", key=key).wait("approval", int, ask="Go on?", timeout_seconds=timeout)

    async def _run(self, key: str, behaviour: str, seconds: float, delay: float = 0.0) -> Any:
        bound = child.options(delay_seconds=delay).bind(behaviour=behaviour, seconds=seconds)
        return await self._ctx.options(name="run", key=key).run(bound)

    async def _map(self, key: str, inputs: list[list[Any]], most: int | None) -> Any:
        rows = [{"behaviour": behaviour, "seconds": seconds} for behaviour, seconds in inputs]
        group = await self._ctx.options(name="map", key=key).map(child, rows, max_failures=most)
        self._ledger.gathered(self._execution, group, len(inputs))
        return [group.total, group.failed, group.cancelled]

    async def _spend(self, key: str, cost: float) -> None:
        await self._ctx.options(name="spend", key=key).spend(BUDGET, cost)

    async def _pause(self, _key: str, seconds: float) -> None:
        """What is between two steps."""
        await asyncio.sleep(seconds)

    async def _raise_once(self, _key: str) -> None:
        if self._ledger.is_first(self._execution):
            raise ValueError("the first time")

    async def _kill_once(self, _key: str) -> None:
        if self._ledger.is_first(self._execution):
            process = CURRENT.get()
            assert process is not None
            Stage.truth.history.add(process, "is killed by its story")
            process.kill()
            await asyncio.sleep(1e6)


async def work(life: int, key: str, seconds: float, behaviour: str) -> int:
    """A step that can run twice until it is recorded; its value is the number of the run that counts."""
    ctx = current_context()
    run = Stage.truth.workflows.begin_step(ctx.task, life, f"step:{key}")
    await asyncio.sleep(seconds)
    if behaviour == "raise" or (behaviour == "raise once" and run.is_first):
        raise ValueError("as asked for")
    run.returned = True
    return run.number


async def write(life: int, key: str, seconds: float) -> int:
    """A step whose effect and record are one commit."""
    ctx = current_context()
    run = Stage.truth.workflows.begin_step(ctx.task, life, f"effect:{key}")
    ctx.connection.execute(
        "INSERT INTO step_effects VALUES (?, ?, ?, ?)", (str(ctx.task.id), life, f"effect:{key}", run.number)
    )
    await asyncio.sleep(min(seconds, 0.5))
    run.returned = True
    return run.number


BODIES: Registry = queue.registry
"""Everything that simulated workers can run."""


def _without_limits() -> Registry:
    """Of a fleet that declares no limits: its claims are single statements."""
    registry = Registry()
    for definition in BODIES:
        if definition.options.declared_limits is None:
            registry.add(definition)
    return registry


UNLIMITED_BODIES: Registry = _without_limits()
