"""The functions of the demo's tasks: most of them only wait as long as real ones would take."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tasklib.cli.demo.ledger import Ledger
from tasklib.cli.demo.workload import Run
from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.middleware import Middleware
from tasklib.errors import Abort
from tasklib.queue import TaskQueue


def define_tasks(queue: TaskQueue, ledger: Ledger, run: Run) -> None:
    """Define every task, and let the ledger count each return."""
    for plain in PLAIN:
        queue.task(name=run.name_of(plain.__name__))(plain)
    for flaky, max_retries in FLAKY.items():
        queue.task(name=run.name_of(flaky.__name__), max_retries=max_retries)(flaky)
    queue.add_middleware(_NoteReturns(ledger))


class _NoteReturns(Middleware):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def after(self, ctx: TaskContext, result: Any) -> None:
        self._ledger.returns[ctx.task.id] += 1


async def send_email(to: str, subject: str) -> str:
    await asyncio.sleep(random.uniform(0.005, 0.03))
    return f"250 OK, queued for {to}"


def resize_picture(picture: str, width: int) -> dict[str, int]:
    time.sleep(random.uniform(0.02, 0.1))
    return {"width": width, "height": width * 3 // 4}


async def crawl_page(url: str, failures: int, ctx: TaskContext) -> int:
    await asyncio.sleep(random.uniform(0.01, 0.05))
    if ctx.attempt <= failures:
        raise ConnectionResetError(f"{url} hung up")
    return 200


async def page_oncall(alert: str) -> None:
    pass


async def remind(user: str) -> None:
    pass


async def charge_card(order: int) -> None:
    await asyncio.sleep(0.02)
    if order % 2:
        raise Abort(f"order {order}: card declined")
    raise TimeoutError(f"order {order}: the bank did not answer")


async def import_contacts(file: str, ctx: TaskContext) -> int:
    for step in range(10):
        await asyncio.sleep(0.08)
        ctx.progress((step + 1) / 10, f"{(step + 1) * 100} rows")
    return 1000


async def build_report(day: int) -> str:
    await asyncio.sleep(0.3)
    return f"report-{day}.pdf"


async def call_partner(partner: str) -> str:
    await asyncio.sleep(random.uniform(0.05, 0.2))
    return f"{partner} says hello"


async def train_model(model: str, epochs: int, ctx: TaskContext) -> dict[str, float]:
    for epoch in range(epochs):
        await asyncio.sleep(0.5)
        ctx.progress((epoch + 1) / epochs, f"epoch {epoch + 1} of {epochs}")
        ctx.log.info("epoch %d: loss %.3f", epoch + 1, 2 / (epoch + 2))
    return {"loss": round(2 / (epochs + 1), 3)}


async def check_health() -> str:
    return "all is well"


async def ship_order(order: int) -> None:
    pass


async def transcode_video(video: str) -> None:
    await asyncio.sleep(3600)


PLAIN: Final[tuple[Callable[..., Any], ...]] = (
    *(send_email, resize_picture, page_oncall, remind, import_contacts, build_report),
    *(call_partner, train_model, check_health, ship_order, transcode_video),
)
FLAKY: Final[Mapping[Callable[..., Any], int]] = {crawl_page: 3, charge_card: 1}
"""Functions that fail, and how often each is tried again."""
