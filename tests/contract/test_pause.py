"""Pausing: stored, for one name or all; what runs goes on."""

from __future__ import annotations

from tasklib.queue.change_log import local_user
from tasklib.storage.operations.access.audit import list_audit
from tests.fixtures.queues import Face, Instance


def test_a_paused_name_is_not_claimed_until_it_is_resumed(queue: Face):
    worker = queue.worker("a", "b")
    paused, other = queue.enqueue("a"), queue.enqueue("b")
    queue.pause("a")

    assert worker.claim_ids() == [other]
    assert queue.resume("a") is True
    assert worker.claim_ids() == [paused]


def test_pausing_everything_stops_every_name(queue: Face):
    worker = queue.worker("a", "b")
    ids = [queue.enqueue("a"), queue.enqueue("b")]
    queue.pause()

    assert worker.claim_ids() == []
    queue.resume()
    assert worker.claim_ids() == ids


def test_resuming_everything_leaves_a_name_paused_by_itself(queue: Face):
    worker = queue.worker("a", "b")
    queue.enqueue("a")
    other = queue.enqueue("b")
    queue.pause("a")
    queue.pause()

    queue.resume()

    assert worker.claim_ids() == [other]
    assert [pause.name for pause in queue.pauses()] == ["a"]


def test_what_runs_goes_on(queue: Face, worker: Instance):
    queue.enqueue("job")
    claimed = worker.take()
    queue.pause()

    assert worker.renew(claimed) == (set(), set())
    assert worker.complete(claimed)


def test_tasks_can_be_submitted_and_cancelled_meanwhile(queue: Face):
    queue.pause()

    assert queue.cancel(queue.enqueue("job")).state == "cancelled"


def test_is_paused_knows_names_and_all(queue: Face):
    assert (queue.is_paused(), queue.is_paused("a")) == (False, False)
    queue.pause("a")
    assert (queue.is_paused(), queue.is_paused("a"), queue.is_paused("b")) == (False, True, False)
    queue.pause()
    assert (queue.is_paused(), queue.is_paused("b")) == (True, True)


def test_a_pause_tells_by_whom_since_when_and_why(queue: Face):
    since = queue.now
    queue.pause("a", by="ann", reason="deploy")
    queue.advance(10)
    queue.pause("a", by="bob", reason="still")

    (pause,) = queue.pauses()
    assert (pause.name, pause.since, pause.by, pause.reason) == ("a", since, "bob", "still")


def test_a_second_pause_starts_its_own_time(queue: Face):
    queue.pause("a")
    queue.resume("a")
    queue.advance(10)
    queue.pause("a")

    assert [pause.since for pause in queue.pauses()] == [queue.now]


def test_resuming_what_is_not_paused_says_so(queue: Face):
    queue.pause("a")

    assert queue.resume() is False
    assert queue.resume("b") is False
    assert queue.resume("a") is True
    assert queue.resume("a") is False


def test_a_pause_of_a_name_nobody_uses_hurts_nobody(queue: Face, worker: Instance):
    queue.pause("nobody's")

    assert worker.claim_ids() == []
    task_id = queue.enqueue("job")
    assert worker.claim_ids() == [task_id]


def test_what_a_program_changes_is_in_the_audit_log_once(queue: Face):
    for _ in range(2):  # the second time nothing is changed
        queue.pause("a", by="ada", reason="repairs")
        queue.set_rate_limit(5, "a")
        queue.set_concurrency_limit(2)
        queue.set_key_limit(3, key="acme")
        queue.set_budget("tokens", per_minute=60)
        queue.set_objective("a", within_seconds=5)
    queue.set_budget("tokens")
    queue.remove_objective("a")
    queue.add_schedule("daily", task="a", cron="@daily")
    for _ in range(2):
        queue.pause_schedule("daily", by="ada")
        queue.resume_schedule("daily")
        queue.remove_schedule("daily")
    queue.resume("a")
    queue.resume("a")
    queue.cancel_many(name="nobody's")
    queue.enqueue("a")
    queue.cancel_many(name="a")
    queue.cancel_many(name="a", state="pending", dry_run=True)

    entries = [each.entry for each in reversed(queue.do(lambda: list_audit(limit=50)))]
    assert [(each.action, each.actor, dict(each.detail)) for each in entries if each.target is None] == [
        ("pause", "ada", {"type": "a", "reason": "repairs"}),
        ("set_rate_limit", local_user(), {"type": "a", "tasksPerSecond": 5}),
        ("set_concurrency_limit", local_user(), {"count": 2}),
        ("set_key_limit", local_user(), {"key": "acme", "count": 3}),
        ("set_objective", local_user(), {"type": "a", "kind": "wait", "withinSeconds": 5, "target": 99.5}),
        ("remove_objective", local_user(), {"type": "a", "kind": "wait"}),
        ("resume", local_user(), {"type": "a"}),
        ("act_on_matching", local_user(), {"action": "cancel", "type": "a", "changed": 1}),
    ]
    assert [(each.action, each.target) for each in entries if each.target is not None] == [
        ("set_budget", "tokens"),
        ("remove_budget", "tokens"),
        ("pause_schedule", "daily"),
        ("resume_schedule", "daily"),
        ("remove_schedule", "daily"),
    ]
    assert {each.role for each in entries} == {"local"}
