"""What people may do to tasks is one table: the statements, the single actions and those in bulk all keep to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasklib import ConfigurationError, InvalidTransition, Task
from tasklib.core.codec import dumps
from tasklib.core.lifecycle import ACTIONS, LIVE, TERMINAL, Action, Phase
from tasklib.storage.statement import Operation, Row, Statement
from tests.fixtures.queues import Face

ALL = [*sorted(TERMINAL), Phase.RUNNING, Phase.RETRYING, Phase.PENDING]
"""In an order in which tasks can be brought there without one being claimed for another."""

ONE: dict[Action, Callable[[Face, Task], object]] = {
    Action.RETRY: lambda queue, task: queue.retry(task.id),
    Action.CANCEL: lambda queue, task: queue.cancel(task.id),
    Action.PRIORITIZE: lambda queue, task: queue.set_priority(task.id, 9),
    Action.DELETE: lambda queue, task: queue.delete(task.id),
}
MANY: dict[Action, Callable[..., Any]] = {
    Action.RETRY: lambda queue, **which: queue.retry_many(**which),
    Action.CANCEL: lambda queue, **which: queue.cancel_many(**which),
    Action.PRIORITIZE: lambda queue, **which: queue.set_priority_many(9, **which),
    Action.DELETE: lambda queue, **which: queue.delete_many(**which),
}
ANY_STATE = dumps([str(phase.state) for phase in Phase if phase not in (Phase.PENDING, Phase.RUNNING)])
STATEMENTS: dict[Action, tuple[str, dict[str, Any]]] = {
    Action.RETRY: ("retry_tasks", {"states": ANY_STATE, "from_scratch": False}),
    Action.CANCEL: ("cancel_tasks", {}),
    Action.PRIORITIZE: ("set_priorities", {"priority": 9}),
    Action.DELETE: ("delete_tasks", {}),
}


def changed_by(queue: Face, act: Callable[[dict[Phase, Task]], object]) -> set[Phase]:
    """In which phases a task was changed."""
    tasks = {phase: queue.task_in(phase) for phase in ALL}
    before = {phase: queue.bytes_of(task.id) for phase, task in tasks.items()}
    queue.advance(1)
    act(tasks)
    return {phase for phase, task in tasks.items() if queue.bytes_of(task.id) != before[phase]}


def test_every_phase_is_tried(form: str) -> None:
    assert set(ALL) == TERMINAL | LIVE


@pytest.mark.parametrize("action", Action)
def test_a_single_action_keeps_to_the_table(queue: Face, action: Action) -> None:
    def act(tasks: dict[Phase, Task]) -> None:
        for phase, task in tasks.items():
            if phase in ACTIONS[action].possible:
                ONE[action](queue, task)
            else:
                with pytest.raises(InvalidTransition, match=f"cannot {action} .* it is {phase}"):
                    ONE[action](queue, task)

    assert changed_by(queue, act) == set(ACTIONS[action].possible)


@pytest.mark.parametrize("action", Action)
def test_the_guard_of_the_statement_keeps_to_the_table(queue: Face, action: Action) -> None:
    name, parameters = STATEMENTS[action]

    def act(tasks: dict[Phase, Task]) -> None:
        ids = dumps(sorted(str(task.id) for task in tasks.values()))

        def run() -> Operation[list[Row]]:
            return list((yield Statement(name, {**parameters, "ids": ids})))

        assert len(queue.do(run)) == len(ACTIONS[action].possible)

    assert changed_by(queue, act) == set(ACTIONS[action].possible)


@pytest.mark.parametrize("action", Action)
def test_without_a_state_a_bulk_action_means_its_default(queue: Face, action: Action) -> None:
    def act(_: object) -> None:
        assert MANY[action](queue, dry_run=True) == MANY[action](queue) == len(ACTIONS[action].by_default)

    assert changed_by(queue, act) == set(ACTIONS[action].by_default)


@pytest.mark.parametrize("action", Action)
def test_every_state_that_allows_an_action_can_be_asked_for(queue: Face, action: Action) -> None:
    possible = ACTIONS[action].possible

    def act(_: object) -> None:
        assert MANY[action](queue, state=possible, dry_run=True) == MANY[action](queue, state=possible) == len(possible)

    assert changed_by(queue, act) == set(possible)


@pytest.mark.parametrize("action", Action)
def test_a_state_that_never_allows_an_action_is_refused(queue: Face, action: Action) -> None:
    def act(_: object) -> None:
        for phase in set(Phase) - set(ACTIONS[action].possible):
            for dry_run in (True, False):
                with pytest.raises(ConfigurationError, match=f"{action} is not possible for {phase} tasks"):
                    MANY[action](queue, state=phase, dry_run=dry_run)

    assert changed_by(queue, act) == set()
