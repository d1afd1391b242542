"""How many workers it takes to run what is due within some time."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib.core.insights.scale import Fleet, Load, Scale, scale
from tasklib.core.limits import Limit


def load(name: str = "job", **given: Any) -> Load:
    usual = {
        "due": 0,
        "running": 0,
        "oldest_seconds": None,
        "seconds_per_task": 1.0,
        "workers_alive": 0,
        "slots_alive": 0,
        "paused": False,
    }
    return Load(name, **usual | given)


def scaled(*loads: Load, objective: float = 60, **fleet: Any) -> Scale:
    usual: dict[str, Any] = {"workers_alive": 0, "slots_alive": 0, "slots_per_worker": 1}
    return scale(loads, Fleet(**usual | fleet), objective_seconds=objective)


def test_an_empty_queue_needs_nobody() -> None:
    assert scaled().workers == 0
    assert scaled(load()).workers == 0
    assert scaled().seconds == 0


@pytest.mark.parametrize(
    "due, seconds, slots",
    [(1, 1, 1), (60, 1, 1), (61, 1, 2), (600, 1, 10), (3, 600, 3), (1000, 0.001, 1)],
)
def test_what_waits_gets_as_many_slots_as_run_it_in_time_and_never_more_than_there_are_tasks(
    due: int, seconds: float, slots: int
) -> None:
    assert scaled(load(due=due, seconds_per_task=seconds)).slots == slots


def test_what_runs_keeps_its_slots_so_that_nobody_is_taken_away_from_it() -> None:
    assert scaled(load(running=7), slots_per_worker=2).workers == 4
    assert scaled(load(running=7, due=120), slots_per_worker=2).workers == 5


def test_types_add_up_and_share_workers() -> None:
    found = scaled(load("a", due=1), load("b", due=1), load("c", running=1), slots_per_worker=4)
    assert [each.workers for each in found.types] == [1, 1, 1]
    assert (found.slots, found.workers) == (3, 1)


def test_what_is_paused_is_shown_and_needs_nobody() -> None:
    found = scaled(load(due=100, running=1, paused=True, oldest_seconds=9))
    assert (found.due, found.paused, found.running, found.workers) == (0, 100, 1, 1)
    assert found.oldest_seconds is None


def test_no_more_workers_are_asked_for_than_a_limit_lets_work() -> None:
    at_once = {"job": Limit("job", None, 3, None)}
    assert scaled(load(due=10_000, running=1), limits=at_once).slots == 3
    slowly = {"job": Limit("job", 2.0, None, None)}
    assert scaled(load(due=10_000, seconds_per_task=4), limits=slowly).slots == 8
    everything = {None: Limit(None, None, 5, None)}
    assert scaled(load("a", due=10_000), load("b", due=10_000), limits=everything).slots == 5
    assert scaled(load("a", running=9), limits=everything).slots == 9


def test_how_long_it_takes_depends_on_who_is_there() -> None:
    assert scaled(load(due=10)).seconds is None
    found = scaled(load(due=10, running=2, slots_alive=4), slots_alive=4)
    assert found.seconds == found.types[0].seconds == 2.75


def test_a_type_that_has_never_run_is_taken_to_need_a_second() -> None:
    assert scaled(load(due=120, seconds_per_task=None)).slots == 2
