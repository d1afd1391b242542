"""What a seed stands for: who takes part, what they do when, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.simulation.link import CALM, Weather

HORIZON = 30.0
"""Seconds in which producers, people and faults are at work; after that everybody is well."""


DRIZZLE = Weather(latency=0.01, lost_request=0.005, lost_reply=0.01, cut=0.005, late=0.005, lost_notice=0.1, slow=0.005)
LATE = Weather(latency=0.01, late=0.12, lost_notice=0.1)
"""Requests whose senders have given up arrive all the same."""
FAR = Weather(latency=0.1)
"""Whoever is resumed has done a lot before an answer tells it what happened meanwhile."""

DEAF = Weather(lost_notice=1.0)
"""No notification arrives."""


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
class Emission:
    """What somebody emits for workflows: a fact, a message to one of them, or an answer to its question."""

    at: float
    what: str
    name: str
    which: int = 0


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Tasks after other tasks: of each its behaviour, its seconds, what is before it, when it runs, and whose result it
    is given."""

    at: float
    nodes: tuple[Any, ...]


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
    lease_seconds: float = 20.0
    """For how long a claim holds unless it is renewed."""
    remote_workers: tuple[int, ...] = ()
    """How many tasks each worker that uses HTTP runs at once."""
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()
    schedules: tuple[dict[str, Any], ...] = ()
    emissions: tuple[Emission, ...] = ()
    flows: tuple[FlowPlan, ...] = ()
    weather: Weather = field(default=CALM)

    @property
    def has_workflows(self) -> bool:
        """Whether somebody waits for what others emit."""
        return bool(self.flows or self.emissions or any(each.name == "story" for each in self.submissions))

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
            *self.flows,
            *self.emissions,
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
    "pause", "resume", "limit", "cleanup", "cancel", "retry", "delete", "prioritize", "use an id again",
    "pause everything", "resume everything", "limit everything", "limit key", "rate", "rate of everything",
)  # fmt: skip
LIMITED = ("limited", "limited", "rated")
FAULTS = (
    "kill", "kill", "stop", "freeze", "freeze", "partition", "outage", "storm", "storm", "drift", "clock step",
    "wall clock step",
)  # fmt: skip
REMOTE_FAULTS = ("kill remote", "freeze remote", "freeze remote", "kill service")
_TROUBLE = (
    "raise", "raise once", "snooze", "abort", "retry", "hang", "stubborn", "slow end", "kill", "kill once", "submit",
    "submit",
)  # fmt: skip


def task_scenario(seed: int) -> Scenario:
    """A run without workflows.

    Each seed has a taste: a few kinds of faults, behaviours and durations.  Rare meetings of two faults are found by
    seeds that have little else.
    """
    random = Random(f"{seed} scenario")
    taste = _taste(random)
    workers = tuple(
        WorkerPlan(concurrency=random.choice(taste.concurrencies), prefetch=random.choice(taste.prefetches))
        for _ in range(random.choice((1, 2, 2, 2, 3)))
    )
    return Scenario(
        seed=seed,
        workers=workers,
        submissions=tuple(_submission(random, taste) for _ in range(random.randint(*taste.submissions))),
        has_limits=taste.has_limits,
        has_retention=random.random() < 0.3,
        lease_seconds=random.choice((20.0, 20.0, 8.0)),
        remote_workers=tuple(random.choice((1, 2)) for _ in range(taste.remote_workers)),
        acts=tuple(_act(random) for _ in range(random.choice(taste.acts))),
        faults=tuple(_fault(random, taste, len(workers)) for _ in range(random.choice(taste.fault_counts))),
        schedules=tuple(_schedule(random, number) for number in range(random.choice((0, 0, 1, 2)))),
        weather=random.choice(taste.weathers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taste:
    """What a seed has much of: each of its parts is chosen from these."""

    concurrencies: tuple[int, ...] = (1, 2, 4)
    prefetches: tuple[int | None, ...] = (None, None, 0, 3)
    remote_workers: int = 0
    submissions: tuple[int, int] = (4, 16)
    """The fewest and the most."""
    names: tuple[str, ...]
    behaviours: tuple[str, ...]
    task_seconds: tuple[float, ...]
    moments: tuple[float, ...] = ()
    """When producers are busy; if none is given, they are all the time."""
    has_limits: bool = False
    acts: tuple[int, ...] = (0, 0, 3, 8)
    faults: tuple[str, ...]
    fault_counts: tuple[int, ...] = (0, 1, 2, 4, 6)
    fault_seconds: tuple[float, ...]
    faults_within: float | None = None
    """Faults come so soon after the producers have been busy, at most; or at any time."""
    steps: tuple[float, ...] = (-3600.0, -8.0, 7.0, 25.0, 3600.0)
    """By how much the database's clock is set forward."""
    weathers: tuple[Weather, ...] = (CALM, CALM, DRIZZLE, LATE, DEAF)


def _taste(random: Random) -> _Taste:
    special = (_late_claims, _keys_and_clocks, _frozen_transactions, _outages, _limits)
    return random.choice((*special, *[_everything] * 7))(random)


def _everything(random: Random) -> _Taste:
    remote_workers, has_limits = random.choice((0, 0, 0, 1, 2)), random.random() < 0.6
    faults = FAULTS + REMOTE_FAULTS if remote_workers else FAULTS
    return _Taste(
        remote_workers=remote_workers,
        names=("plain", "plain", "plain", "keyed", "effect", "blocking", *(LIMITED if has_limits else ())),
        behaviours=(*["ok"] * random.choice((2, 6)), *random.sample(_TROUBLE, random.choice((1, 3, 6)))),
        task_seconds=tuple(random.sample((0.0, 0.05, 0.5, 3.0, 8.0, 12.0, 20.0), 3)),
        moments=_bursts(random, random.choice((0, 0, 1, 2))),
        has_limits=has_limits,
        faults=tuple(random.sample(faults, random.choice((1, 2, 3, 5)))),
        fault_seconds=tuple(random.sample((0.3, 3.0, 5.5, 6.5, 8.0, 10.0, 15.0), 3)),
    )


def _late_claims(random: Random) -> _Taste:
    """More waits than the workers hold, and requests arrive that their senders have given up."""
    return _Taste(
        concurrencies=(1,),
        prefetches=(0,),
        submissions=(12, 20),
        names=("plain",),
        behaviours=("ok", "ok", "raise once"),
        task_seconds=(0.05, 0.5, 3.0),
        moments=_bursts(random, 2),
        acts=(0,),
        faults=("outage", "partition", "storm"),
        fault_counts=(0, 1),
        fault_seconds=(0.3, 3.0),
        weathers=(replace(LATE, late=0.25),),
    )


def _keys_and_clocks(random: Random) -> _Taste:
    """Tasks wait for their keys while the database's clock is set."""
    return _Taste(
        names=("keyed",),
        behaviours=("ok", "ok", "ok", "raise once"),
        task_seconds=(0.5, 3.0, 8.0),
        moments=_bursts(random, 1),
        acts=(0,),
        faults=("clock step",),
        fault_counts=(1, 2, 3),
        fault_seconds=(0.0,),
        steps=(-3600.0, -20.0, -8.0, 25.0),
        weathers=(CALM, DRIZZLE),
    )


def _frozen_transactions(random: Random) -> _Taste:
    """Workers stand still before the transactions of tasks that they hold begin."""
    return _Taste(
        prefetches=(3, 3, None),
        submissions=(10, 20),
        names=("effect",),
        behaviours=("ok", "ok", "ok", "raise once", "submit"),
        task_seconds=(0.0, 0.0, 0.05, 0.5),
        moments=_bursts(random, 2),
        acts=(0, 3),
        faults=("freeze", "freeze", "freeze", "kill"),
        fault_counts=(2, 4, 6),
        fault_seconds=(8.0, 10.0, 15.0),
        faults_within=3.0,
        weathers=(FAR, FAR, DRIZZLE),
    )


def _outages(random: Random) -> _Taste:
    """Long tasks run while the database is away for about as long as a worker may be silent."""
    remote_workers = random.choice((0, 1))
    return _Taste(
        remote_workers=remote_workers,
        submissions=(4, 10),
        names=("plain", "plain", "keyed"),
        behaviours=("ok", "ok", "kill once"),
        task_seconds=(8.0, 12.0, 20.0),
        moments=_bursts(random, 2),
        acts=(0,),
        faults=("outage", "outage", "partition", *(("kill service",) if remote_workers else ())),
        fault_counts=(1, 2, 3),
        fault_seconds=(5.5, 6.5, 8.0),
        weathers=(CALM, DRIZZLE),
    )


def _limits(random: Random) -> _Taste:
    """More waits than limits allow, while people pause, change limits and set the clock."""
    return _Taste(
        remote_workers=random.choice((0, 0, 1)),
        submissions=(10, 20),
        names=random.choice((("limited", "rated", "rated"), ("limited", "keyed", "plain"))),
        behaviours=("ok", "ok", "raise once", "retry", "slow end"),
        task_seconds=(0.0, 0.5, 3.0, 8.0),
        moments=_bursts(random, 2),
        has_limits=True,
        acts=(0, 8, 16),
        faults=("clock step", "kill", "freeze"),
        fault_counts=(0, 1, 2),
        fault_seconds=(3.0, 8.0),
        weathers=(CALM, DRIZZLE, LATE),
    )


def _bursts(random: Random, count: int) -> tuple[float, ...]:
    return tuple(random.uniform(0.0, HORIZON * 0.8) for _ in range(count))


def _submission(random: Random, taste: _Taste) -> Submission:
    name = random.choice(taste.names)
    arguments: dict[str, Any] = {
        "behaviour": random.choice(taste.behaviours),
        "seconds": random.choice(taste.task_seconds) * random.uniform(0.8, 1.2),
    }
    if name == "keyed":
        arguments["key"] = random.choice(("a", "b"))
    options: dict[str, Any] = {"max_retries": random.randint(0, 2), "priority": random.choice((0, 0, 5))}
    if name == "plain" and random.random() < 0.1:
        options["concurrency_key"] = "a"
    if arguments["behaviour"] == "hang" or random.random() < 0.1:
        options["timeout_seconds"] = random.choice((1.0, 4.0))
    if random.random() < 0.2:
        options["delay_seconds"] = random.uniform(0.1, 10.0)
    if random.random() < 0.2:
        options["unique_key"] = random.choice(("u", "v"))
    at = random.choice(taste.moments) if taste.moments else random.uniform(0.0, HORIZON * 0.8)
    return Submission(at + random.uniform(0.0, 0.5), name, arguments, options)


def _act(random: Random) -> Act:
    what = random.choice((*ACTS, "cancel", "retry", "delete"))
    return Act(random.uniform(0.0, HORIZON), what, random.randrange(100), random.choice((0, 1, 2, 3)))


def _fault(random: Random, taste: _Taste, workers: int) -> Fault:
    what = random.choice(taste.faults)
    seconds = random.choice(taste.fault_seconds) * random.uniform(0.9, 1.1)
    amount = random.uniform(0.97, 1.03) if what == "drift" else random.choice(taste.steps)
    at = random.uniform(0.0, HORIZON)
    if taste.faults_within is not None:
        at = random.choice(taste.moments) + random.uniform(0.0, taste.faults_within)
    return Fault(at, what, random.randrange(workers), seconds, amount)


def _schedule(random: Random, number: int) -> dict[str, Any]:
    return {
        "name": f"every{number}",
        "task": "tick",
        "every": random.choice((2.0, 5.0)),
        "misfire": random.choice(("skip", "one", "all")),
        "overlap": random.choice(("allow", "skip")),
    }
