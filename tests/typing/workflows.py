"""Workflows and flows as users write them; no checker finds anything to complain about.  Checked, never run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

from tasklib import AsyncTaskContext, Group, TaskContext, TaskId, TaskQueue, injected

queue = TaskQueue("sqlite:///tasks.db")


@dataclass
class Receipt:
    cents: int


@queue.task
def price(order: int) -> int:
    return order


@queue.task(max_retries=5)
async def pay(order: int) -> Receipt:
    return Receipt(order)


def reserve(order: int, *, shelf: str = "A") -> str:
    return f"{shelf}{order}"


async def ship(order: int) -> Receipt:
    return Receipt(order)


def merge(done: Group[Receipt]) -> int:
    return sum(receipt.cents for receipt in done.results())


@queue.task(context=True)
async def awaiting(ctx: AsyncTaskContext, order: int) -> int:
    assert_type(await ctx.step(reserve, order, shelf="B"), str)
    assert_type(await ctx.step(ship, order), Receipt)
    assert_type(await ctx.options(retries=3, key="again").step(ship, order), Receipt)
    assert_type(await ctx.run(price.bind(order)), int)
    assert_type(await ctx.run(pay.bind(order=order), timeout_seconds=60), Receipt)
    assert_type(await ctx.run(pay.options(priority=3).bind(order)), Receipt)
    assert_type(await ctx.wait("shipped", Receipt, timeout_seconds=3600), Receipt)
    assert_type(await ctx.wait(("paid", "refused")), Any)
    await ctx.sleep(3600)
    await ctx.spend("tokens", 5)
    first, second = await asyncio.gather(ctx.step(reserve, 1), ctx.step(ship, 2))
    assert_type(first, str)
    assert_type(second, Receipt)
    numbers = await ctx.map(price, ({"order": each} for each in range(3)))
    assert_type(numbers, Group[int])
    done = await ctx.map(pay, [{"order": 1}], max_failures=0)
    assert_type(done, Group[Receipt])
    async for receipt in done.results():
        assert_type(receipt, Receipt)
    return await ctx.step(merge, done)


@queue.task
def blocking(order: int, ctx: TaskContext = injected()) -> int:
    assert_type(ctx.step(reserve, order), str)
    assert_type(ctx.step(ship, order), Receipt)
    assert_type(ctx.run(price.bind(order)), int)
    assert_type(ctx.run(pay.bind(order)), Receipt)
    assert_type(ctx.wait("shipped", Receipt), Receipt)
    ctx.sleep(60)
    done = ctx.map(pay, [{"order": 1}])
    assert_type(done, Group[Receipt])
    return merge(done) + done.failed + len(done)


@queue.task
def report(cents: int, receipt: Receipt) -> None: ...


def flowing() -> None:
    flow = queue.flow("orders")
    cents, receipt = flow.add(price.bind(1)), flow.add(pay.bind(1))
    assert_type(cents.result, int)
    assert_type(receipt.result, Receipt)
    assert_type(receipt.id, TaskId[Receipt])
    last = flow.add(report.bind(cents.result, receipt.result), after=[cents], run_if="success")
    assert_type(last.id.wait(), None)
    flow.submit()
