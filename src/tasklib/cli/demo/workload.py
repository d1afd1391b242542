"""The demo's tasks and who submits them: quick, slow, flaky, doomed, delayed, urgent, limited and cancelled ones."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tasklib.cli.demo.books import Books
from tasklib.context import TaskContext
from tasklib.errors import Abort
from tasklib.queue import TaskQueue
from tasklib.task import TaskState

COMPLETED, FAILED, CANCELLED = TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED
PEOPLE: Final = ("ada", "grace", "alan", "barbara", "edsger", "margaret", "tim", "radia")


@dataclass(frozen=True, slots=True)
class Run:
    """What tells one demo's tasks from everything else in the database, also from another demo's."""

    id: str
    prefix: str

    @property
    def tags(self) -> dict[str, str]:
        """The tags of its tasks."""
        return {"demo": self.id}

    def name_of(self, kind: str) -> str:
        """The name of its tasks of a kind."""
        return f"{self.prefix}.{kind}"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of task and how it is submitted."""

    name: str
    ending: TaskState
    arguments: Callable[[int], dict[str, Any]]
    per_wave: int = 1
    every: int = 1
    """Submitted in every n-th wave."""
    options: Callable[[int], dict[str, Any]] = lambda number: {}


KINDS: Final = (
    Kind("send_email", COMPLETED, lambda n: {"to": f"{random.choice(PEOPLE)}@example.com", "subject": f"Order {n}"}, 8),
    Kind("resize_picture", COMPLETED, lambda n: {"picture": f"photo-{n}.jpg", "width": random.choice((320, 1280))}, 2),
    Kind("crawl_page", COMPLETED, lambda n: {"url": f"https://example.com/{n}", "failures": n % 3}, 2),
    Kind("page_oncall", COMPLETED, lambda n: {"alert": f"disk {n % 100} % full"}, options=lambda n: {"priority": 50}),
    Kind("remind", COMPLETED, lambda n: {"user": random.choice(PEOPLE)}, options=lambda n: {"delay_seconds": 1.5}),
    Kind("charge_card", FAILED, lambda n: {"order": random.randrange(10_000)}, every=2),
    Kind("import_contacts", COMPLETED, lambda n: {"file": f"contacts-{n}.csv"}, every=4),
    Kind(
        "build_report", COMPLETED, lambda n: {"day": n // 100}, 2, options=lambda n: {"unique_key": f"day-{n // 100}"}
    ),
    Kind("call_partner", COMPLETED, lambda n: {"partner": random.choice(("acme", "globex", "initech"))}, 2, every=2),
    Kind("train_model", COMPLETED, lambda n: {"model": f"churn-{n // 100}", "epochs": 12}, every=14),
    Kind("ship_order", CANCELLED, lambda n: {"order": n}, every=3, options=lambda n: {"delay_seconds": 3600}),
    Kind(
        "transcode_video", CANCELLED, lambda n: {"video": f"clip-{n}.mp4"}, every=5, options=lambda n: {"priority": 20}
    ),
)


CALLS_PER_SECOND: Final = 5
BEAT_SECONDS: Final = 3.0


@asynccontextmanager
async def arranged(queue: TaskQueue, run: Run) -> AsyncGenerator[None, None]:
    """A limit and a schedule meanwhile; both are taken away again, because the database may be somebody's own."""
    limited, beat = run.name_of("call_partner"), run.name_of("check_health")
    await queue.aset_rate_limit(CALLS_PER_SECOND, limited)
    await queue.aadd_schedule(f"{run.prefix} health", task=beat, every=BEAT_SECONDS)
    await queue.aadd_schedule(f"{run.prefix} weekly digest", task=beat, cron="0 9 * * mon", tz="Europe/Paris")
    try:
        yield
    finally:
        for name in (f"{run.prefix} health", f"{run.prefix} weekly digest"):
            await queue.aremove_schedule(name)
        await queue.aset_rate_limit(0, limited)


class Producer:
    """Submits waves of tasks, and changes its mind about some of the wave before."""

    def __init__(self, queue: TaskQueue, books: Books, run: Run) -> None:
        self._queue = queue
        self._books = books
        self._run = run
        self._wave = 0
        self._regretted: list[Any] = []

    async def submit_wave(self) -> None:
        """Submit one wave in one statement; cancel what should be cancelled of the one before."""
        regretted, self._regretted = self._regretted, []
        self._wave += 1
        chosen = [kind for kind in KINDS if self._wave % kind.every == 0 for _ in range(kind.per_wave)]
        ids = await self._queue.asubmit_new([self._new(kind, i) for i, kind in enumerate(chosen)])
        for kind, task_id in zip(chosen, ids, strict=True):
            self._books.submitted(task_id.id, kind.ending, created=task_id.created)
            if kind.ending is CANCELLED:
                self._regretted.append(task_id.id)
        for task_id in regretted:
            await self._queue.acancel(task_id)

    async def finish(self) -> None:
        """Cancel what is left to cancel."""
        for task_id in self._regretted:
            await self._queue.acancel(task_id)
        self._regretted = []

    def _new(self, kind: Kind, position: int) -> Any:
        number = self._wave * 100 + position
        name, options = self._run.name_of(kind.name), kind.options(number)
        return self._queue.new_by_name(name, kind.arguments(number), tags=self._run.tags, **options)


def define_tasks(queue: TaskQueue, books: Books, run: Run) -> None:
    """The functions behind the names; each notes that it returned."""

    def task(function: Callable[..., Any], **options: Any) -> None:
        queue.task(name=run.name_of(function.__name__), **options)(function)

    def returned(ctx: TaskContext) -> None:
        books.returns[ctx.task.id] += 1

    async def send_email(to: str, subject: str, ctx: TaskContext) -> str:
        await asyncio.sleep(random.uniform(0.005, 0.03))
        returned(ctx)
        return f"250 OK, queued for {to}"

    def resize_picture(picture: str, width: int, ctx: TaskContext) -> dict[str, int]:
        time.sleep(random.uniform(0.02, 0.1))
        returned(ctx)
        return {"width": width, "height": width * 3 // 4}

    async def crawl_page(url: str, failures: int, ctx: TaskContext) -> int:
        await asyncio.sleep(random.uniform(0.01, 0.05))
        if ctx.attempt <= failures:
            raise ConnectionResetError(f"{url} hung up")
        returned(ctx)
        return 200

    async def page_oncall(alert: str, ctx: TaskContext) -> None:
        returned(ctx)

    async def remind(user: str, ctx: TaskContext) -> None:
        returned(ctx)

    async def charge_card(order: int) -> None:
        await asyncio.sleep(0.02)
        if order % 2:
            raise Abort(f"order {order}: card declined")
        raise TimeoutError(f"order {order}: the bank did not answer")

    async def import_contacts(file: str, ctx: TaskContext) -> int:
        for step in range(10):
            await asyncio.sleep(0.08)
            ctx.progress((step + 1) / 10, f"{(step + 1) * 100} rows")
        returned(ctx)
        return 1000

    async def build_report(day: int, ctx: TaskContext) -> str:
        await asyncio.sleep(0.3)
        returned(ctx)
        return f"report-{day}.pdf"

    async def call_partner(partner: str, ctx: TaskContext) -> str:
        await asyncio.sleep(random.uniform(0.05, 0.2))
        returned(ctx)
        return f"{partner} says hello"

    async def train_model(model: str, epochs: int, ctx: TaskContext) -> dict[str, float]:
        for epoch in range(epochs):
            await asyncio.sleep(0.5)
            ctx.progress((epoch + 1) / epochs, f"epoch {epoch + 1} of {epochs}")
            ctx.log.info("epoch %d: loss %.3f", epoch + 1, 2 / (epoch + 2))
        returned(ctx)
        return {"loss": round(2 / (epochs + 1), 3)}

    async def check_health() -> str:
        return "all is well"

    async def ship_order(order: int, ctx: TaskContext) -> None:
        returned(ctx)

    async def transcode_video(video: str, ctx: TaskContext) -> None:
        await asyncio.sleep(3600)
        returned(ctx)

    plain: tuple[Callable[..., Any], ...] = (
        *(send_email, resize_picture, page_oncall, remind, import_contacts),
        *(build_report, call_partner, train_model, check_health, ship_order),
    )
    for function in plain:
        task(function)
    task(crawl_page, max_retries=3)
    task(charge_card, max_retries=1)
    task(transcode_video)
