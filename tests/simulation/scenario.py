"""What a seed stands for: who takes part, what they do when, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.simulation.link import CALM, Weather

HORIZON = 30.0
"""Seconds in which producers, people and faults are at work; after that everybody is well."""


DRIZZLE = Weather(latency=0.01, lost_request=0.005, lost_reply=0.01, cut=0.005, late=0.005, lost_notice=0.1, slow=0.005)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker, which is started again when it was killed."""

    concurrency: int
    prefetch: int | None


@dataclass(frozen=True, slots=True)
class Submission:
    """A task that a producer submits."""

    at: float
    name: str
    arguments: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Act:
    """What a person does."""

    at: float
    what: str
    which: int = 0
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong."""

    at: float
    what: str
    which: int = 0
    seconds: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything about one run; taking elements out of it gives a smaller run."""

    seed: int
    workers: tuple[WorkerPlan, ...]
    submissions: tuple[Submission, ...]
    has_limits: bool = True
    """Whether the workers know the tasks that declare limits."""
    has_retention: bool = False
    """Whether completed tasks are removed after a while."""
    remote_workers: tuple[int, ...] = ()
    """How many tasks each worker that uses HTTP runs at once."""
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()
    schedules: tuple[dict[str, Any], ...] = ()
    weather: Weather = field(default=CALM)

    def random(self, purpose: str) -> Random:
        """Numbers for one purpose, which stay the same when something else is taken out."""
        return Random(f"{self.seed} {purpose}")

    def describe(self) -> str:
        """The parts, one on each line."""
        parts = [
            *self.workers,
            *self.remote_workers,
            *self.schedules,
            *self.submissions,
            *self.acts,
            *self.faults,
            self.weather,
        ]
        return "\n".join(f"  {part}" for part in parts)

    def without(self, part: str, position: int) -> Scenario:
        """The same without one element of a part."""
        elements = getattr(self, part)
        return replace(self, **{part: (*elements[:position], *elements[position + 1 :])})


ACTS = (
    "pause", "resume", "limit", "cleanup", "cancel", "retry", "delete", "prioritize", "use an id again"
)  # fmt: skip
LIMITED = ("limited", "limited", "rated")
FAULTS = (
    "kill", "kill", "stop", "freeze", "freeze", "partition", "outage", "storm", "storm", "drift", "clock step"
)  # fmt: skip
REMOTE_FAULTS = ("kill remote", "freeze remote", "freeze remote", "kill service")
_TROUBLE = ("raise", "raise once", "snooze", "abort", "retry", "hang", "stubborn", "kill", "kill once")


def scenario_of(seed: int) -> Scenario:
    """The run that a seed stands for.

    Each seed has a taste: a few kinds of faults, behaviours and durations.  Rare meetings of two faults are found by
    seeds that have little else.
    """
    random = Random(f"{seed} scenario")
    workers = tuple(
        WorkerPlan(concurrency=random.choice((1, 2, 4)), prefetch=random.choice((None, None, 0, 3)))
        for _ in range(random.choice((1, 2, 2, 2, 3)))
    )
    remote_workers = tuple(random.choice((1, 2)) for _ in range(random.choice((0, 0, 0, 1, 2))))
    taste = _taste(random, bool(remote_workers))
    return Scenario(
        seed=seed,
        workers=workers,
        submissions=tuple(_submission(random, taste) for _ in range(random.randint(4, 16))),
        has_limits=taste.has_limits,
        has_retention=random.random() < 0.3,
        remote_workers=remote_workers,
        acts=tuple(_act(random) for _ in range(random.choice((0, 0, 3, 8)))),
        faults=tuple(_fault(random, taste, len(workers)) for _ in range(random.choice((0, 1, 2, 4, 6)))),
        schedules=tuple(_schedule(random, number) for number in range(random.choice((0, 0, 1, 2)))),
        weather=random.choice((CALM, CALM, DRIZZLE)),
    )


@dataclass(frozen=True, slots=True)
class _Taste:
    """What a seed has much of."""

    faults: tuple[str, ...]
    fault_seconds: tuple[float, ...]
    behaviours: tuple[str, ...]
    task_seconds: tuple[float, ...]
    has_limits: bool


def _taste(random: Random, has_remote: bool) -> _Taste:
    faults = FAULTS + REMOTE_FAULTS if has_remote else FAULTS
    return _Taste(
        faults=tuple(random.sample(faults, random.choice((1, 2, 3, 5)))),
        fault_seconds=tuple(random.sample((0.3, 3.0, 5.5, 6.5, 8.0, 10.0, 15.0), 3)),
        behaviours=(*["ok"] * random.choice((2, 6)), *random.sample(_TROUBLE, random.choice((1, 3, 6)))),
        task_seconds=tuple(random.sample((0.0, 0.05, 0.5, 3.0, 8.0, 12.0), 3)),
        has_limits=random.random() < 0.6,
    )


def _submission(random: Random, taste: _Taste) -> Submission:
    limited = LIMITED if taste.has_limits else ()
    name = random.choice(("plain", "plain", "plain", "keyed", "effect", "blocking", *limited))
    arguments: dict[str, Any] = {
        "behaviour": random.choice(taste.behaviours),
        "seconds": random.choice(taste.task_seconds) * random.uniform(0.8, 1.2),
    }
    if name == "keyed":
        arguments["key"] = random.choice(("a", "b"))
    options: dict[str, Any] = {"max_retries": random.randint(0, 2), "priority": random.choice((0, 0, 5))}
    if arguments["behaviour"] == "hang" or random.random() < 0.1:
        options["timeout_seconds"] = random.choice((1.0, 4.0))
    if random.random() < 0.2:
        options["delay_seconds"] = random.uniform(0.1, 10.0)
    if random.random() < 0.2:
        options["unique_key"] = random.choice(("u", "v"))
    return Submission(random.uniform(0.0, HORIZON * 0.8), name, arguments, options)


def _act(random: Random) -> Act:
    what = random.choice((*ACTS, "cancel", "retry", "delete"))
    return Act(random.uniform(0.0, HORIZON), what, random.randrange(100), random.choice((0, 1, 2, 3)))


def _fault(random: Random, taste: _Taste, workers: int) -> Fault:
    what = random.choice(taste.faults)
    seconds = random.choice(taste.fault_seconds) * random.uniform(0.9, 1.1)
    amount = random.uniform(0.97, 1.03) if what == "drift" else random.choice((-3600.0, -8.0, 7.0, 25.0, 3600.0))
    return Fault(random.uniform(0.0, HORIZON), what, random.randrange(workers), seconds, amount)


def _schedule(random: Random, number: int) -> dict[str, Any]:
    return {
        "name": f"every{number}",
        "task": "tick",
        "every": random.choice((2.0, 5.0)),
        "misfire": random.choice(("skip", "one", "all")),
        "overlap": random.choice(("allow", "skip")),
    }
