"""Looking around: whether an idle worker has anything to do, said by one statement that changes nothing."""

from __future__ import annotations

import pytest

from tasklib.storage.operations import claims
from tasklib.storage.operations.claims import Seen
from tasklib.storage.operations.workflows import events
from tests.fixtures.queues import Face, Instance

NOTHING = Seen(may_claim=False, next_due_in=None, events=False, groups=False)


def look(queue: Face, worker: Instance, *names: str) -> Seen:
    return queue.do(lambda: claims.look_around(worker.instance, names or ("job",)))


def test_nothing_waits(queue: Face, worker: Instance):
    queue.enqueue("of another name")

    assert look(queue, worker) == NOTHING


def test_what_is_due_may_be_claimed_whatever_its_priority(queue: Face, worker: Instance):
    queue.enqueue("job", priority=5, delay_seconds=60)
    queue.enqueue("job", priority=-5)

    assert look(queue, worker).may_claim
    assert worker.claim_ids()
    assert not look(queue, worker).may_claim


def test_what_is_due_later_is_told_with_its_time(queue: Face, worker: Instance):
    queue.enqueue("job", delay_seconds=90)
    queue.enqueue("job", priority=1, delay_seconds=60)

    seen = look(queue, worker)

    assert not seen.may_claim
    assert seen.next_due_in == pytest.approx(60, abs=0.01)
    queue.advance(60)
    assert look(queue, worker).may_claim


def test_a_pause_a_limit_or_a_key_leaves_the_decision_to_the_claim(queue: Face, worker: Instance):
    queue.pause("job")
    assert look(queue, worker).may_claim
    queue.resume("job")
    assert not look(queue, worker).may_claim
    queue.enqueue("job", concurrency_key="k")
    assert look(queue, worker).may_claim


def test_an_instance_that_is_not_known_any_more_claims_and_so_learns_it(queue: Face, worker: Instance):
    worker.forget()

    assert look(queue, worker).may_claim


def test_events_that_nobody_delivered_are_seen_until_somebody_does(queue: Face, worker: Instance):
    queue.do(lambda: events.emit("paid", "{}", None, None))
    assert look(queue, worker) == NOTHING._replace(events=True)

    queue.do(events.deliver_new)
    assert look(queue, worker) == NOTHING
