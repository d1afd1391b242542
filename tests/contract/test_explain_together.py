"""Several things keep a task from running at once: every one of them is told, in order, with the right numbers.

Each scene is drawn by chance and built by the public means; what must be told is worked out from the draw alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from tasklib import TaskId
from tasklib.core.insights.explain import Reason
from tests.contract.test_explain import START, Bench

NAMES = ("crawl", "mail")
KEY = "ada"
SEEDS = 30


@dataclass(frozen=True)
class Waiting:
    """A task that waits beside the one that is explained."""

    name: str
    key: str | None
    priority: int
    due: float
    """Seconds after the start."""


@dataclass
class Scene:
    """What was drawn."""

    now: float = 0.0
    """Seconds after the start at which is asked."""
    paused: set[str | None] = field(default_factory=set[str | None])
    workers: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    concurrency: int = 0
    running: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    rates: dict[str | None, float] = field(default_factory=dict[str | None, float])
    most: dict[str | None, int] = field(default_factory=dict[str | None, int])
    key_limits: dict[tuple[str | None, str | None], int] = field(
        default_factory=dict[tuple[str | None, str | None], int]
    )
    others: list[Waiting] = field(default_factory=list[Waiting])
    task: Waiting = Waiting("crawl", None, 0, 0)

    @classmethod
    def drawn(cls, seed: int) -> Scene:
        chance = random.Random(seed)
        scene = cls()
        scene.paused = {name for name in (None, *NAMES) if chance.random() < 0.3}
        # The first can run everything, so that what runs can be claimed; whether it lives when asked is drawn too.
        scene.workers = [NAMES, *chance.choices([("crawl",), ("mail",), NAMES], k=chance.choice([0, 0, 1, 2]))]
        keys = [None, None, KEY, "bob"]
        scene.running = [(chance.choice(NAMES), chance.choice(keys)) for _ in range(chance.choice([0, 3, 5, 6]))]
        scene.concurrency = chance.choice([len(scene.running) or 1, 9])
        for name in (None, "crawl"):
            if chance.random() < 0.5:
                # Fast enough for what runs to start at once, and used up by it or not.
                started = sum(name in (None, each) for each, _ in scene.running)
                scene.rates[name] = float(max(1, started, chance.choice([0, 0, 4])))
            if chance.random() < 0.5:
                scene.most[name] = chance.randrange(1, 5)
        for where in ((None, None), (None, KEY), ("crawl", None), ("crawl", KEY)):
            if chance.random() < 0.3:
                scene.key_limits[where] = chance.randrange(4)
        scene.task = Waiting(
            "crawl", chance.choice([None, KEY]), chance.randrange(3), chance.choice([0.0, 0.0, 0.1, 0.1, 42.0])
        )
        scene.others = [
            Waiting(chance.choice(NAMES), chance.choice(keys), chance.randrange(3), chance.choice([0.0, 0.1, 50.0]))
            for _ in range(chance.randrange(8))
        ]
        scene.now = chance.choice([0.125, 0.5])
        return scene

    def expected(self, ids: list[str], before: int, *, alive: bool) -> list[tuple[str, dict[str, Any]]]:
        """What must be told: each code with what its evidence must hold."""
        told = list(self._standing(alive=alive))
        if self.task.due > self.now:
            return told
        bound = [*self._key(ids), *self._limits(ids)]
        told += bound
        if alive:
            told += self._place(before, ready=not bound and not self._pauses())
        return told

    def _pauses(self) -> list[str | None]:
        return [name for name in (None, "crawl") if name in self.paused]

    def _standing(self, *, alive: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.task.due > self.now:
            yield "delayed", {"seconds": self.task.due - self.now}
        for name in self._pauses():
            yield "paused", {"name": name, "by": "ann", "since": START}
        if not alive:
            yield "no_worker", {"workers": []}

    def _key(self, ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.task.key is None:
            return
        scope = "crawl" if any(name == "crawl" for name, _ in self.key_limits) else None
        limit = next((self.key_limits[w] for w in ((scope, KEY), (scope, None)) if w in self.key_limits), 1)
        held = [i for i, (name, key) in zip(ids, self.running, strict=True) if key == KEY and scope in (None, name)]
        if limit and len(held) >= limit:
            yield "key_limit", {"key": KEY, "name": scope, "limit": limit, "held_by": set(held)}

    def _limits(self, ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for limited in (None, "crawl"):
            held = [i for i, (name, _) in zip(ids, self.running, strict=True) if limited in (None, name)]
            if (rate := self.rates.get(limited)) is not None:
                tokens = min(max(1.0, rate), max(1.0, rate) - len(held) + rate * self.now)
                if tokens < 1:
                    yield "rate_limit", {"name": limited, "rate": rate, "seconds": (1 - tokens) / rate}
            if (most := self.most.get(limited)) is not None and len(held) >= most:
                yield "concurrency_limit", {"name": limited, "limit": most, "held_by": set(held)}

    def _place(self, before: int, *, ready: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        able = [names for names in self.workers if "crawl" in names]
        slots, taken = self.concurrency * len(able), len(self.running)
        if taken >= slots:
            yield "busy", {"slots": slots, "running": taken}
        if before:
            yield "behind", {"ahead": before, "capped": False, "key": self.task.key}
        if ready and taken < slots and not before:
            yield "ready", {"slots": slots, "running": taken}

    def before(self) -> int:
        """How many waiting tasks come before the one explained; all were stored before it."""
        known = {name for names in self.workers if "crawl" in names for name in names} - self.paused | {"crawl"}
        mine = (-self.task.priority, self.task.due)
        return sum(
            each.name in known
            and each.key == self.task.key
            and each.due <= self.now
            and (-each.priority, each.due) <= mine
            for each in self.others
        )


def build(scene: Scene, bench: Bench, *, alive: bool) -> tuple[TaskId, list[str]]:
    """The task to explain, and those that run, in the order of the draw."""
    queue = bench.queue
    queue.set_key_limit(0)
    for name, rate in scene.rates.items():
        queue.set_rate_limit(rate, name)
    crew = [
        bench.worker(*names, concurrency=scene.concurrency, worker_id=f"w{number}", timeout=600 if alive else 0.1)
        for number, names in enumerate(scene.workers)
    ]
    running = [str(queue.enqueue(name, concurrency_key=key)) for name, key in scene.running]
    if running:
        assert {task.id for task in bench.claim(crew[0], limit=100)} == set(running)
    queue.set_key_limit(None)
    for (name, key), limit in scene.key_limits.items():
        queue.set_key_limit(limit, key=key, name=name)
    for name, most in scene.most.items():
        queue.set_concurrency_limit(most, name)
    for name in scene.paused:
        queue.pause(name, by="ann")
    ids = [
        queue.enqueue(each.name, concurrency_key=each.key, priority=each.priority, run_after=at(each.due))
        for each in (*scene.others, scene.task)
    ]
    bench.clock.advance(scene.now)
    return ids[-1], running


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def check(reason: Reason, evidence: dict[str, Any]) -> None:
    for what, value in evidence.items():
        seen = reason.evidence[what]
        if what == "held_by":  # no more are named than the limit allows
            assert set(seen) <= value
            assert len(seen) == min(len(value), evidence["limit"])
        else:
            assert seen == (pytest.approx(value, abs=1e-3) if isinstance(value, float) else value), (reason, what)
    assert reason.remedy or reason.code == "ready"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.backends("sqlite-memory", "postgres-newest")
def test_every_reason_is_told_in_order_with_the_right_numbers(database_url: str, seed: int) -> None:
    scene, alive = Scene.drawn(seed), lives(seed)
    told, expected = explained(scene, database_url, alive=alive)
    assert [reason.code for reason in told] == [code for code, _ in expected]
    for reason, (_, evidence) in zip(told, expected, strict=True):
        check(reason, evidence)


@pytest.mark.backends("sqlite-memory", "postgres-newest")
def test_nine_reasons_at_once(database_url: str) -> None:
    scene = Scene(
        now=0.125,
        paused={None, "crawl"},
        workers=[NAMES],
        concurrency=1,
        running=[("crawl", KEY)],
        rates={None: 1.0, "crawl": 1.0},
        most={None: 1, "crawl": 1},
        others=[Waiting("crawl", KEY, 9, 0.0)],
        task=Waiting("crawl", KEY, 0, 0.0),
    )
    told, expected = explained(scene, database_url, alive=True)
    limits = ["rate_limit", "concurrency_limit"] * 2
    assert [reason.code for reason in told] == ["paused", "paused", "key_limit", *limits, "busy", "behind"]
    for reason, (_, evidence) in zip(told, expected, strict=True):
        check(reason, evidence)


def explained(scene: Scene, url: str, *, alive: bool) -> tuple[tuple[Reason, ...], list[tuple[str, dict[str, Any]]]]:
    """What is told, and what must be."""
    bench = Bench(url)
    task_id, running = build(scene, bench, alive=alive)
    told = bench.queue.explain(task_id).reasons
    bench.queue.close()
    return told, scene.expected(running, scene.before(), alive=alive)


def test_the_draws_hold_every_reason_of_a_waiting_task_and_many_together() -> None:
    told = []
    for seed in range(SEEDS):
        scene = Scene.drawn(seed)
        ids = [str(number) for number in range(len(scene.running))]
        told.append([code for code, _ in scene.expected(ids, scene.before(), alive=lives(seed))])
    waiting = "delayed paused no_worker key_limit rate_limit concurrency_limit busy behind ready"
    assert {code for codes in told for code in codes} == set(waiting.split())
    assert max(map(len, told)) >= 4


def lives(seed: int) -> bool:
    """Whether the workers of a scene are alive when it is asked."""
    return seed % 5 != 0
