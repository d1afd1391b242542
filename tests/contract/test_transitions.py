"""Every pair of phase and event: the legal ones lead where the table says, the others change nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tasklib import InvalidTransition, Task, UniqueConflict
from tasklib.core.codec import encode_result
from tasklib.core.lifecycle import TRANSITIONS, Ending, Event, Phase, phase_of
from tasklib.core.outcome import Completion
from tasklib.storage.operations import attempts
from tests.fixtures.queues import TIMEOUT_SECONDS, Face

pytestmark = pytest.mark.parametrize("form", ["blocking"], indirect=True)  # both forms run the same statements
REFUSED = "refused"
OPTIONS: dict[Event, Callable[[Face], dict[str, Any]]] = {
    Event.EXPIRE: lambda queue: {"expires_at": queue.now + timedelta(hours=1)},
    Event.LOSE: lambda queue: {"max_retries": 3},
    Event.BURY: lambda queue: {"max_retries": 0},
}
"""What a task needs so that the event can happen to it."""


def claim(queue: Face, task: Task) -> None:
    queue.advance(60)  # a retry is due by then
    queue.worker(task.name).claim()


def complete(queue: Face, task: Task) -> None:
    done = Completion(str(task.id), task.version, encode_result("late"), 0.0, 0.0)
    _require(not queue.do(lambda: attempts.complete_tasks([done])))


def end(queue: Face, ending: Ending) -> None:
    _require(not queue.do(lambda: attempts.end_attempts([ending])))


def cancel(queue: Face, task: Task) -> None:
    """A person asks, and if the task runs its worker obeys; one that does not run has no worker to obey."""
    refusal = None
    try:
        after = queue.cancel(task.id)
    except InvalidTransition as error:
        after, refusal = task, error
    try:
        end(queue, Ending.cancel(str(task.id), task.version))
    except Refused:
        if refusal is None and phase_of(after) is not Phase.CANCELLED:
            raise
    if refusal is not None:
        raise refusal


def expire(queue: Face, task: Task) -> None:
    queue.advance(2 * 3600)
    assert queue.worker(task.name).claim().tasks == []


def lose(queue: Face, task: Task) -> None:
    queue.advance(TIMEOUT_SECONDS + 1)
    queue.recover_stale_tasks()


def replace(queue: Face, task: Task) -> None:
    """Another submission under the same unique key."""
    answer = queue.enqueue(task.name, {"new": True}, unique_key="k", on_conflict="replace")
    _require(answer == task.id)


HAPPEN: dict[Event, Callable[[Face, Task], object]] = {
    Event.CLAIM: claim,
    Event.COMPLETE: complete,
    Event.RETRY_LATER: lambda q, t: end(q, Ending.retry_later(str(t.id), t.version, delay=1, error="E: e")),
    Event.GIVE_UP: lambda q, t: end(q, Ending.give_up(str(t.id), t.version, error="E: e")),
    Event.SNOOZE: lambda q, t: end(q, Ending.snooze(str(t.id), t.version, delay=1)),
    Event.SUSPEND: lambda q, t: end(q, Ending.suspend(str(t.id), t.version, waits_for="sleep", delay=1)),
    Event.RESTART: lambda q, t: end(q, Ending.restart(str(t.id), t.version, arguments="{}")),
    Event.RELEASE: lambda q, t: end(q, Ending.release(str(t.id), t.version)),
    Event.CANCEL: cancel,
    Event.EXPIRE: expire,
    Event.LOSE: lose,
    Event.BURY: lose,
    Event.RETRY: lambda q, t: q.retry(t.id),
    Event.REPLACE: replace,
    Event.DELETE: lambda q, t: q.delete(t.id),
}


class Refused(Exception):
    """The answer was empty."""


def _require(accepted: bool) -> None:
    if not accepted:
        raise Refused


def after(queue: Face, phase: Phase, event: Event) -> Phase | str | None:
    """Where a task of the phase stands after the event, None if its row is gone."""
    options = OPTIONS.get(event, lambda _: {})(queue)
    task = queue.task_in(phase, name=f"{phase}-{event}", unique_key="k", **options)
    before = queue.bytes_of(task.id)
    refused = False
    try:
        HAPPEN[event](queue, task)
    except (Refused, InvalidTransition, UniqueConflict):
        refused = True
    unchanged = queue.bytes_of(task.id) == before
    if refused or unchanged:
        return REFUSED if unchanged else "refused, and yet changed"
    found = queue.get(task.id)
    return None if found is None else phase_of(found)


def test_every_event_is_tried(form: str):
    assert set(HAPPEN) == set(Event)


@pytest.mark.parametrize("phase", Phase)
def test_events_lead_where_the_table_says_and_nowhere_else(queue: Face, phase: Phase):
    outcomes = {event: after(queue, phase, event) for event in Event}

    assert outcomes == {event: TRANSITIONS.get((phase, event), REFUSED) for event in Event}


@pytest.mark.parametrize("phase", Phase)
def test_terminal_and_completed_at_go_together(queue: Face, phase: Phase):
    task = queue.task_in(phase)
    terminal = phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.BURIED)

    assert (task.completed_at is not None) is terminal
    assert (task.due_at is not None) is (phase in (Phase.PENDING, Phase.RETRYING))
