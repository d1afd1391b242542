"""Emits events, answers questions and submits flows, as people and other programs do."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from tasklib import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidTransition,
    StorageError,
    TaskNotFound,
    TaskQueue,
)
from tasklib.storage.operations.workflows import events
from tests.simulation.checks import Checker
from tests.simulation.plots import FACTS
from tests.simulation.scenario import Emission, FlowPlan
from tests.simulation.stories import BUDGET, BURST, RATE, node

AGAIN = (DatabaseUnavailable, DatabaseBusy)
PAUSE = 0.5


class Emitters:
    """Emits what a scenario plans, and at the end whatever any workflow still waits for."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._numbers = itertools.count(1)

    async def emit(self, queue: TaskQueue, emission: Emission) -> str:
        """Emit it once, as a person would; returns the outcome or the name of the error."""
        known = sorted(row.id for row in self._checker.rows.values() if row.name == "story")
        try:
            match emission.what:
                case "fact":
                    return str(await queue.aemit(emission.name, {"fact": emission.name}))
                case "message" if known:
                    await self._send(queue, known[emission.which % len(known)])
                case "answer":
                    for question in (await queue.database.arun(events.list_questions))[:1]:
                        await queue.aanswer(question["task_id"], question["key"], emission.which)
        except (StorageError, TaskNotFound, InvalidTransition, ConfigurationError) as error:
            return type(error).__name__
        return "done"

    async def budget(self, queue: TaskQueue) -> None:
        """Set the budget; tries again until it is confirmed."""
        while True:
            try:
                await queue.aset_budget(BUDGET, per_second=RATE, burst=BURST)
                return
            except AGAIN:
                await asyncio.sleep(PAUSE)

    async def submit(self, queue: TaskQueue, plan: FlowPlan) -> None:
        """Submit a flow; tries again until it is confirmed, because a second submission changes nothing."""
        flow = queue.flow("night")
        nodes = []
        for behaviour, seconds, after, run_if, given in plan.nodes:
            arguments = {"behaviour": behaviour, "seconds": seconds}
            if given is not None:
                arguments["given"] = nodes[given].result
            nodes.append(flow.add(node.bind(**arguments), after=[nodes[each] for each in after], run_if=run_if))
        for made, (_, _, after, _, given) in zip(nodes, plan.nodes, strict=True):
            self._checker.workflows.before[str(made.id)] = [
                str(nodes[each].id) for each in sorted({*after, *([] if given is None else [given])})
            ]
            if given is not None:
                self._checker.workflows.given[str(made.id)] = str(nodes[given].id)
        while True:
            try:
                stored = await flow.asubmit()
            except AGAIN:
                await asyncio.sleep(PAUSE)
            else:
                for task_id in stored:
                    self._checker.truth.acknowledge(UUID(str(task_id)), "node")
                return

    async def emit_all(self, queue: TaskQueue) -> None:
        """Emit every fact, answer every question and send every message that a workflow waits for, over and over."""
        while True:
            for fact in FACTS:  # Again and again: where the clock was set, a fact may be removed too early.
                await queue.aemit(fact, {"fact": fact})
            for question in await queue.database.arun(events.list_questions):
                with suppress(InvalidTransition):  # Somebody whose request was on its way has answered it.
                    await queue.aanswer(question["task_id"], question["key"], 1)
            for task_id in self._waiting("event note"):
                await self._send(queue, task_id)
            await asyncio.sleep(2.0)

    def _waiting(self, what: str) -> Sequence[str]:
        rows = self._checker.rows.values()
        return sorted(row.id for row in rows if row.is_live and (row.waits_for or "").startswith(what))

    async def _send(self, queue: TaskQueue, task_id: str) -> None:
        await queue.aemit("note", {"message": next(self._numbers)}, to=task_id)
