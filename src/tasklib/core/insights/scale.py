"""How many workers it takes to run what is due within some time.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tasklib.core.limits import Limit

OBJECTIVE_SECONDS: Final = 60.0
"""Within how many seconds a fleet should run what is due, unless the caller gives another objective."""
UNMEASURED_SECONDS: Final = 1.0
"""How long a task is taken to run while none of its type has ended within the hour."""


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to do of one type, and what could do it."""

    name: str
    due: int
    running: int
    oldest_seconds: float | None
    """For how long the first of them has been due."""
    seconds_per_task: float | None
    """How long one ran on average within the last hour; None if none has."""
    workers_alive: int
    slots_alive: int
    """How many tasks the live workers that take tasks of the name run at once, other types included."""
    paused: bool


@dataclass(frozen=True, slots=True)
class TypeScale:
    """One type: what waits and can run, what runs, how long it would take, and what it would take."""

    name: str
    due: int
    """Due, and not paused."""
    paused: int
    """Due, but paused: no worker could start them."""
    running: int
    oldest_seconds: float | None
    seconds_per_task: float | None
    seconds: float | None
    """Until all of it has run, by the live workers that take it; None if there is none."""
    slots: int
    """How many at once: those that run, and enough for those that wait."""
    workers: int
    workers_alive: int


@dataclass(frozen=True, slots=True)
class Scale:
    """The queue, or some of its types: what waits and can run, and how many workers that would take."""

    objective_seconds: float
    slots_per_worker: int
    due: int
    paused: int
    running: int
    oldest_seconds: float | None
    seconds: float | None
    slots: int
    workers: int
    workers_alive: int
    types: tuple[TypeScale, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers there are, and the limits they share."""

    workers_alive: int
    slots_alive: int
    slots_per_worker: int
    limits: Mapping[str | None, Limit] = field(default_factory=dict[str | None, Limit])
    """By name; None for the whole queue."""


def scale(loads: Iterable[Load], fleet: Fleet, *, objective_seconds: float) -> Scale:
    """How many workers run what is due within the objective, while what runs already goes on.

    Running tasks count one slot each, so that a fleet shrinks only when its work has ended.  More slots than a limit
    lets run at once are never asked for.
    """
    types = tuple(_of_type(load, fleet, objective_seconds) for load in loads)
    whole = fleet.limits.get(None)
    running = sum(each.running for each in types)
    slots = sum(each.slots for each in types)
    if whole is not None and whole.max_running is not None:
        slots = max(running, min(slots, whole.max_running))
    return Scale(
        objective_seconds=objective_seconds,
        slots_per_worker=fleet.slots_per_worker,
        due=sum(each.due for each in types),
        paused=sum(each.paused for each in types),
        running=running,
        oldest_seconds=max((each.oldest_seconds for each in types if each.oldest_seconds is not None), default=None),
        seconds=_duration(sum(map(_work, types)), fleet.slots_alive),
        slots=slots,
        workers=_workers(slots, fleet),
        workers_alive=fleet.workers_alive,
        types=types,
    )


def _of_type(load: Load, fleet: Fleet, objective_seconds: float) -> TypeScale:
    due = 0 if load.paused else load.due
    slots = load.running + _for_waiting(due, load, fleet.limits.get(load.name), objective_seconds)
    return TypeScale(
        name=load.name,
        due=due,
        paused=load.due - due,
        running=load.running,
        oldest_seconds=load.oldest_seconds if due else None,
        seconds_per_task=load.seconds_per_task,
        seconds=_duration(_seconds(load) * (due + load.running / 2), load.slots_alive),
        slots=slots,
        workers=_workers(slots, fleet),
        workers_alive=load.workers_alive,
    )


def _for_waiting(due: int, load: Load, limit: Limit | None, objective_seconds: float) -> int:
    """Slots beside those in use: never more than there are tasks, nor than a limit could fill."""
    if due == 0:
        return 0
    slots = min(due, max(1, math.ceil(due * _seconds(load) / objective_seconds)))
    if limit is not None and limit.rate is not None:
        slots = min(slots, max(1, math.ceil(limit.rate * _seconds(load))))
    if limit is not None and limit.max_running is not None:
        slots = min(slots, max(0, limit.max_running - load.running))
    return slots


def _seconds(load: Load | TypeScale) -> float:
    return UNMEASURED_SECONDS if load.seconds_per_task is None else load.seconds_per_task


def _work(scaled: TypeScale) -> float:
    """Seconds of one slot; what runs is half done, on average."""
    return _seconds(scaled) * (scaled.due + scaled.running / 2)


def _duration(work: float, slots: int) -> float | None:
    if work == 0:
        return 0.0
    return round(work / slots, 3) if slots else None


def _workers(slots: int, fleet: Fleet) -> int:
    return math.ceil(slots / fleet.slots_per_worker)
