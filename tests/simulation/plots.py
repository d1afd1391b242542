"""What the seeds of workflows stand for: stories of steps, waits, children, budgets, and what is emitted for them."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.link import CALM
from tests.simulation.scenario import (
    DRIZZLE,
    FAR,
    HORIZON,
    LATE,
    Act,
    Emission,
    Fault,
    FlowPlan,
    Scenario,
    Submission,
    WorkerPlan,
)

FACTS = ("shipped", "paid", "closed")
SECONDS = (0.0, 0.05, 0.5, 3.0)
PATIENCE = (None, None, 2.0, 8.0, 25.0)
FAULTS = ("kill", "kill", "kill", "stop", "freeze", "freeze", "partition", "outage", "storm", "clock step")
ACTS = ("cancel", "cancel", "retry", "retry", "delete", "prioritize", "cleanup", "limit everything", "pause everything")
LATE_CHILD = HORIZON + 20.0
"""A child that runs long after all faults, if nobody cancels it."""

Op = list[Any]


def workflow_scenario(seed: int) -> Scenario:
    """A run whose tasks are mostly workflows; each seed has a taste, a few kinds of steps and of faults."""
    random = Random(f"{seed} workflows")
    kinds = random.choice(
        (
            ("step", "effect", "sleep"),
            ("wait", "take", "ask", "step"),
            ("run", "map", "step"),
            ("map", "map", "run"),
            ("late", "late", "map"),
            ("spend", "spend", "step"),
            ("take", "take", "at once"),
            ("step", "effect", "sleep", "wait", "take", "ask", "run", "map", "spend", "at once", "restart"),
        )
    )
    faults = tuple(random.sample(FAULTS, random.choice((1, 2, 3))))
    stories = tuple(_story(random, kinds) for _ in range(random.randint(2, 7)))
    return Scenario(
        seed=seed,
        workers=tuple(
            WorkerPlan(random.choice((1, 2, 4)), random.choice((None, None, 0, 3)))
            for _ in range(random.choice((1, 2, 2, 3)))
        ),
        submissions=stories,
        has_limits=False,
        has_retention=random.random() < 0.2,
        lease_seconds=random.choice((20.0, 20.0, 8.0)),
        acts=tuple(_act(random, ("cancel",) if "late" in kinds else ACTS) for _ in range(random.choice((0, 2, 4, 8)))),
        faults=tuple(_fault(random, faults) for _ in range(random.choice((0, 1, 2, 4)))),
        weather=random.choice((CALM, CALM, DRIZZLE, LATE, FAR)),
        emissions=tuple(_emission(random, stories) for _ in range(random.choice((2, 6, 12)))),
        flows=tuple(_flow(random) for _ in range(random.choice((0, 0, 1, 2)))),
    )


def _story(random: Random, kinds: tuple[str, ...]) -> Submission:
    ops = [_op(random, random.choice(kinds)) for _ in range(random.randint(1, 5))]
    if random.random() < 0.3:
        trouble: Op = [random.choice(("raise_once", "raise_once", "kill_once"))]
        ops.insert(random.randrange(len(ops) + 1), trouble)
    arguments = {"ops": ops, "careful": random.random() < 0.6}
    return Submission(random.choice((0.2, random.uniform(0.0, HORIZON - 5))), "story", arguments, {})


def _op(random: Random, kind: str) -> Op:
    seconds = random.choice(SECONDS)
    match kind:
        case "step":
            behaviour = random.choice(("ok", "ok", "ok", "raise once", "raise"))
            return ["step", seconds, behaviour, random.choice((0, 0, 1, 2))]
        case "effect":
            return ["effect", seconds]
        case "sleep":
            return ["sleep", random.choice((0.5, 1.5, 5.0, 12.0))]
        case "wait":
            return ["wait", random.sample(FACTS, random.choice((1, 1, 2))), random.choice(PATIENCE)]
        case "take":
            return ["take", "note", random.choice(PATIENCE)]
        case "ask":
            return ["ask", random.choice(PATIENCE)]
        case "run":
            return ["run", _behaviour(random), seconds, random.choice((0.0, 0.0, LATE_CHILD))]
        case "late":
            return ["run", "ok", seconds, LATE_CHILD]
        case "map":
            inputs = [[_behaviour(random), random.choice(SECONDS)] for _ in range(random.choice((0, 1, 3, 6)))]
            return ["map", inputs, random.choice((None, None, 0, 2))]
        case "spend":
            return ["spend", float(random.choice((1, 2, 5)))]
        case "at once":
            inside = [random.choice(("step", "take", "wait", "run", "sleep")) for _ in range(random.choice((2, 3)))]
            return ["at once", *(_op(random, each) for each in inside)]
        case _:
            return ["restart"]


def _behaviour(random: Random) -> str:
    return random.choice(("ok", "ok", "ok", "ok", "raise once", "raise", "abort", "kill once"))


def _act(random: Random, acts: tuple[str, ...]) -> Act:
    return Act(random.uniform(1.0, HORIZON), random.choice(acts), random.randrange(1000), random.choice((1, 2, 5)))


def _fault(random: Random, kinds: tuple[str, ...]) -> Fault:
    return Fault(
        random.uniform(0.2, HORIZON - 4),
        random.choice(kinds),
        random.randrange(3),
        random.choice((0.3, 3.0, 6.5, 8.0, 12.0)),
        random.choice((-3600.0, -8.0, 7.0, 25.0)),
    )


def _emission(random: Random, stories: tuple[Submission, ...]) -> Emission:
    """At any time, or while a story begins to wait."""
    what = random.choice(("fact", "message", "message", "answer"))
    at = random.choice((random.uniform(0.1, HORIZON), random.choice(stories).at + random.uniform(0.0, 0.5)))
    return Emission(at, what, random.choice(FACTS), random.randrange(1000))


def _flow(random: Random) -> FlowPlan:
    nodes = []
    for number in range(random.choice((2, 3, 5))):
        after = sorted(random.sample(range(number), min(number, random.choice((1, 1, 2)))))
        given = random.choice(after) if after and random.random() < 0.5 else None
        is_free = after and given is None
        run_if = random.choice(("success", "success", "failure", "end")) if is_free else "success"
        nodes.append([_behaviour(random), random.choice(SECONDS), after, run_if, given])
    return FlowPlan(random.uniform(0.1, HORIZON - 10), tuple(nodes))
