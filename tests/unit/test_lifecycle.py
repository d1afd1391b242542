"""The table of legal transitions, against what the design says in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklib.core.lifecycle import (
    ACTIONS,
    CLEANUP_STATES,
    EFFECTS,
    LIVE,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    Action,
    Ending,
    Event,
    Phase,
    allowed,
    phase_of,
    refusal,
    states_for,
)
from tasklib.core.task import Task, TaskState
from tasklib.errors import ConfigurationError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def task_in(state: TaskState, **changes: Any) -> Task:
    return Task(UUID(int=1), "job", state, NOW, NOW, NOW, **changes)


def reachable(start: Phase) -> set[Phase]:
    found: set[Phase] = {start}
    while True:
        after = {to for (origin, _), to in TRANSITIONS.items() if origin in found and to is not None}
        if after <= found:
            return found
        found |= after


def test_each_phase_is_waiting_running_or_terminal():
    assert {*WAITING, Phase.RUNNING, *TERMINAL} == set(Phase)


def test_nothing_is_both_live_and_terminal():
    assert not LIVE & TERMINAL


def test_only_waiting_tasks_are_claimed():
    assert {phase for phase in Phase if allowed(phase, Event.CLAIM)} == WAITING


def test_everything_an_attempt_can_end_in_starts_from_running():
    endings = {Event.COMPLETE, Event.RETRY_LATER, Event.GIVE_UP, Event.SNOOZE, Event.RELEASE, Event.LOSE, Event.BURY}
    endings |= {Event.SUSPEND, Event.RESTART}

    assert {phase for phase, event in TRANSITIONS if event in endings} == {Phase.RUNNING}


def test_every_live_task_can_be_cancelled_and_no_other():
    assert {phase for phase in Phase if allowed(phase, Event.CANCEL)} == LIVE


def test_a_terminal_task_leaves_its_phase_only_by_retry_or_delete():
    assert {event for phase, event in TRANSITIONS if phase in TERMINAL} == {Event.RETRY, Event.DELETE}


def test_every_terminal_phase_can_be_retried_by_hand_back_to_pending():
    assert {TRANSITIONS[phase, Event.RETRY] for phase in TERMINAL} == {Phase.PENDING}


def test_only_terminal_tasks_are_deleted_and_then_the_row_is_gone():
    assert {phase: to for (phase, event), to in TRANSITIONS.items() if event is Event.DELETE} == dict.fromkeys(TERMINAL)


def test_a_running_task_is_neither_replaced_nor_expired():
    assert not allowed(Phase.RUNNING, Event.REPLACE)
    assert not allowed(Phase.RUNNING, Event.EXPIRE)


def test_every_phase_can_be_reached_from_a_submission():
    assert reachable(Phase.PENDING) == set(Phase)


def test_every_event_has_a_phase_in_which_it_may_happen():
    assert {event for _, event in TRANSITIONS} == set(Event)


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_no_story_leaves_the_known_phases(story: list[Event]):
    phase: Phase | None = Phase.PENDING
    for event in story:
        if phase is not None and allowed(phase, event):
            phase = TRANSITIONS[phase, event]

    assert phase is None or phase in Phase


def test_the_table_cannot_be_changed():
    table: Any = TRANSITIONS

    with pytest.raises(TypeError):
        table[Phase.COMPLETED, Event.CLAIM] = Phase.RUNNING


@pytest.mark.parametrize("state", [each for each in TaskState if each is not TaskState.FAILED])
def test_the_phase_of_a_task_is_its_state(state: TaskState):
    assert phase_of(task_in(state)) == state.value


def test_a_failed_task_with_a_retry_to_come_is_retrying():
    assert phase_of(task_in(TaskState.FAILED, next_retry_at=NOW)) is Phase.RETRYING


def test_a_failed_task_without_one_is_failed():
    assert phase_of(task_in(TaskState.FAILED, completed_at=NOW)) is Phase.FAILED


@pytest.mark.parametrize("action", [Action.RETRY, Action.CANCEL, Action.DELETE])
def test_an_action_is_possible_where_its_event_is_legal(action: Action):
    assert set(ACTIONS[action].possible) == {phase for phase in Phase if allowed(phase, Event(action))}


@pytest.mark.parametrize("action", Action)
def test_no_bulk_action_means_completed_or_cancelled_tasks_by_default(action: Action):
    assert set(states_for(action)) <= set(ACTIONS[action].possible) - {Phase.COMPLETED, Phase.CANCELLED}


def test_a_clean_up_means_tasks_that_can_be_deleted():
    assert states_for(Action.DELETE, CLEANUP_STATES) == ("completed",)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("state", [*Phase, "delayed"])
def test_a_state_asked_for_is_taken_or_refused_as_the_table_says(action: Action, state: str):
    if (Phase.PENDING if state == "delayed" else state) in ACTIONS[action].possible:
        assert states_for(action, [state]) == (state,)
    else:
        with pytest.raises(ConfigurationError, match=rf"^{action} is not possible for {state} tasks, only for "):
            states_for(action, [state])


def test_a_task_that_cannot_be_deleted_is_to_be_cancelled_first():
    error = refusal(Action.DELETE, task_in(TaskState.FAILED, next_retry_at=NOW))

    assert str(error).endswith(
        "it is retrying; delete is possible when it is completed, failed, cancelled, buried; cancel first"
    )


@pytest.mark.parametrize("event", EFFECTS)
def test_an_ending_leaves_the_row_in_the_state_the_table_says(event: Event):
    phase = TRANSITIONS[Phase.RUNNING, event]
    assert phase is not None

    assert (EFFECTS[event].state, EFFECTS[event].terminal) == (phase.state, phase in TERMINAL)


def test_only_a_snoozed_suspended_or_released_attempt_is_given_back():
    refunded = {event for event, effect in EFFECTS.items() if effect.refund}
    assert refunded == {Event.SNOOZE, Event.SUSPEND, Event.RELEASE}


def test_only_a_retry_to_come_counts_as_one():
    assert {event for event, effect in EFFECTS.items() if effect.retried} == {Event.RETRY_LATER, Event.LOSE}


@pytest.mark.parametrize(
    "ending, event",
    [
        (Ending.retry_later("id", 7, delay=1, error="e"), Event.RETRY_LATER),
        (Ending.give_up("id", 7, error="e"), Event.GIVE_UP),
        (Ending.bury("id", 7, error="e"), Event.BURY),
        (Ending.lose("id", 7, error="e"), Event.LOSE),
        (Ending.snooze("id", 7, delay=1), Event.SNOOZE),
        (Ending.release("id", 7), Event.RELEASE),
        (Ending.cancel("id", 7), Event.CANCEL),
        (Ending.restart("id", 7, arguments="{}"), Event.RESTART),
    ],
)
def test_each_ending_carries_its_event_and_its_fencing_token(ending: Ending, event: Event):
    assert (ending.event, ending.version) == (event, 7)


def test_an_ending_takes_the_time_the_work_really_took():
    ending = Ending.give_up("id", 7, error="e").between(1.0, 2.5)

    assert (ending.started, ending.ended, ending.error) == (1.0, 2.5, "e")
