"""What is wrong now: every kind of finding, ranked, with what can be done about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from tasklib.core.insights.findings import Parked, Severity, Situation, find
from tasklib.core.limits import Pause
from tasklib.core.queue_info import EndedWorker, ErrorGroup, QueueStats, WorkerInfo

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
ID = UUID(int=7)


def stats(**by_name: dict[str, int]) -> QueueStats:
    totals = dict.fromkeys(
        ("pending", "running", "completed", "failed", "cancelled", "buried", "delayed", "retrying", "waiting"), 0
    )
    return QueueStats(**totals, by_name=by_name)


def worker(*names: str, running: int = 0, alive: bool = True, stuck: int = 0, stopping: bool = False) -> WorkerInfo:
    return WorkerInfo(
        *(ID, "w-1", "host", 1, NOW, NOW, names, 4, not running, alive, running),
        stuck_threads=stuck,
        stopping=stopping,
    )


def lost(tasks: int, minutes: int = 1) -> EndedWorker:
    then = NOW - timedelta(minutes=minutes)
    return EndedWorker(ID, "w-9", "host-9", 1, "v2", then, then, then, "lost", tasks)


def group(count: int, minutes: int) -> ErrorGroup:
    then = NOW - timedelta(minutes=minutes)
    return ErrorGroup("g1", "charge", "CardError in app.charge", count, then, then, ID, "CardError: declined")


def test_nothing_is_wrong_with_a_queue_that_works():
    seen = Situation(NOW, stats(job={"pending": 5, "delayed": 5, "running": 4}), (), [worker("job", running=4)])

    assert find(seen) == ()


def test_everything_that_is_wrong_the_most_urgent_first():
    counts = stats(
        slow={"running": 4},
        charge={"pending": 7},
        legacy={"pending": 300, "delayed": 1},
        mail={"pending": 2},
    )
    found = find(
        Situation(
            NOW,
            counts,
            [Pause("mail", NOW - timedelta(hours=2), "ada", "provider is down")],
            [worker("slow", "charge", "mail", running=4, stuck=1)],
            ended=[lost(124), lost(3, minutes=90)],
            errors=[group(12, 5), group(99, 600)],
            parked=[Parked("trip", 9, NOW, ID)],
            releases={"g1": "v2"},
        )
    )

    assert [(each.code, each.count) for each in found] == [
        ("slots_held", 308),
        ("unhandled", 299),
        ("worker_lost", 124),
        ("new_error", 12),
        ("parked", 9),
        ("paused", 2),
        ("stuck_threads", 1),
    ]
    texts = {each.code: each.text for each in found}
    assert texts["slots_held"] == "All 4 slots are taken, 4 by slow; 308 of other types wait"
    assert texts["unhandled"] == "No running worker handles legacy, 299 waiting"
    assert texts["worker_lost"] == "Worker w-9 on host-9 was lost with 124 tasks, which run again"
    assert texts["new_error"] == "CardError in charge is new in release v2: CardError: declined"
    assert texts["parked"] == "9 trip tasks are parked: their code does not fit what was recorded"
    assert texts["paused"] == "mail is paused by ada: provider is down"
    resume, look = next(each for each in found if each.code == "paused").remedies
    assert (resume.action, resume.target, look.action) == ("resume", "mail", "tasks")


def test_a_type_whose_only_worker_is_stopping_is_unhandled():
    seen = Situation(NOW, stats(a={"pending": 1}, b={"pending": 2}), (), [worker("a", stopping=True), worker("b")])

    assert [(each.code, each.name, each.count) for each in find(seen)] == [("unhandled", "a", 1)]


def test_without_a_worker_one_finding_says_it_for_all_types():
    (found,) = find(Situation(NOW, stats(a={"pending": 1}, b={"pending": 2}), (), [worker("a", alive=False)]))

    assert (found.code, found.severity, found.count) == ("no_workers", "critical", 3)


def test_the_last_worker_that_was_killed_is_named_with_everything_that_waits_for_it():
    killed = worker("a", alive=False, running=2)

    (found,) = find(Situation(NOW, stats(a={"pending": 1, "running": 2}), (), [killed]))

    assert (found.code, found.severity, found.count, found.since) == ("no_workers", "critical", 3, NOW)
    assert found.text.startswith("The last worker, w-1 on host, ended without saying goodbye, 3 tasks wait; ")
    (held,) = find(Situation(NOW, stats(a={"running": 2}), (), [killed]))
    assert (held.code, held.count) == ("no_workers", 2), "also if it took everything with it"


def test_a_worker_that_fell_silent_is_told_of_before_it_is_recorded_as_lost():
    silent, idle = worker("a", alive=False, running=2), worker("a", alive=False)

    (found,) = find(Situation(NOW, stats(a={"running": 2}), (), [worker("a"), silent]))
    assert (found.code, found.severity, found.count) == ("worker_silent", "warning", 2)
    (alone,) = find(Situation(NOW, stats(), (), [idle]))
    assert (alone.code, alone.severity) == ("worker_silent", "info")


def test_of_a_kind_the_worst_are_told_one_by_one_and_the_others_are_counted():
    counts = stats(**{f"job{number}": {"pending": number} for number in range(1, 26)})
    situation = Situation(
        NOW,
        counts,
        (),
        [worker("other")],
        ended=[lost(tasks) for tasks in range(15)],
        errors=[group(5, 5)],
        more_errors=[group(2, 5), group(1, 5)],
    )

    found = find(situation)

    unhandled = [each for each in found if each.code == "unhandled"]
    assert [each.name for each in unhandled if each.name] == [f"job{number}" for number in range(25, 15, -1)]
    rest = next(each for each in found if each.text == "15 more types that no running worker handles")
    assert found.index(rest) > found.index(unhandled[9])
    assert (rest.count, rest.alike, rest.severity) == (sum(range(1, 16)), 15, Severity.WARNING)
    assert next(each.count for each in found if each.text == "5 more lost workers") == 0 + 1 + 2 + 3 + 4
    assert next((each.count, each.alike) for each in found if each.text == "2 more errors are new or back") == (3, 2)
