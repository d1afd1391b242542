"""What the demo submits: fast, slow, failing, delayed, urgent, limited and cancelled tasks, in waves."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tasklib.cli.demo.ledger import Ledger
from tasklib.core.task import TaskState
from tasklib.queue import TaskQueue

COMPLETED, FAILED, CANCELLED = TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED
PEOPLE: Final = ("ada", "grace", "alan", "barbara", "edsger", "margaret", "tim", "radia")


@dataclass(frozen=True, slots=True)
class Run:
    """Distinguishes the tasks of one demo from everything else in the database, other demos included."""

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
    """A limit and schedules inside the block; they are removed at its end, because the database may be shared."""
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
    """Submits waves of tasks, and cancels some of the wave before."""

    def __init__(self, queue: TaskQueue, ledger: Ledger, run: Run) -> None:
        self._queue = queue
        self._ledger = ledger
        self._run = run
        self._wave = 0
        self._to_cancel: list[Any] = []

    async def submit_wave(self) -> None:
        """Submit one wave in one statement; cancel what should be cancelled of the one before."""
        to_cancel, self._to_cancel = self._to_cancel, []
        self._wave += 1
        chosen = [kind for kind in KINDS if self._wave % kind.every == 0 for _ in range(kind.per_wave)]
        ids = await self._queue.asubmit_new([self._new(kind, i) for i, kind in enumerate(chosen)])
        for kind, task_id in zip(chosen, ids, strict=True):
            self._ledger.submitted(task_id.id, kind.ending, created=task_id.created)
            if kind.ending is CANCELLED:
                self._to_cancel.append(task_id.id)
        for task_id in to_cancel:
            await self._queue.acancel(task_id)

    async def finish(self) -> None:
        """Cancel what is left to cancel."""
        for task_id in self._to_cancel:
            await self._queue.acancel(task_id)
        self._to_cancel = []

    def _new(self, kind: Kind, position: int) -> Any:
        number = self._wave * 100 + position
        name, options = self._run.name_of(kind.name), kind.options(number)
        return self._queue.new_by_name(name, kind.arguments(number), tags=self._run.tags, **options)
