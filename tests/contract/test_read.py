"""Reading: one task, a page of them, how many there are, and where they stand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasklib import ConfigurationError, InvalidTaskId, TaskNotFound
from tasklib.core.lifecycle import Phase
from tasklib.storage.operations.tasks import waiting_names
from tests.fixtures.queues import Face


def numbers(queue: Face, **filters: Any) -> list[int]:
    """The payloads of a list."""
    return [task.payload for task in queue.list(**filters)]


@pytest.fixture
def one_of_each(queue: Face) -> dict[str, Any]:
    """A task in each phase, and one that is delayed; those that wait last."""
    ended = [Phase.BURIED, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.RETRYING, Phase.RUNNING]
    ids = {phase.value: queue.task_in(phase).id for phase in ended}
    ids["delayed"] = queue.enqueue("job", delay_seconds=3600)
    ids["pending"] = queue.enqueue("job")
    return ids


def test_a_task_is_found_by_its_id_as_uuid_or_text(queue: Face):
    task_id = queue.enqueue("job")

    assert queue.get(task_id).id == queue.get(str(task_id)).id == queue.get(task_id.hex).id == task_id


def test_an_unknown_id_is_no_task_and_what_cannot_be_an_id_is_an_error(queue: Face):
    queue.enqueue("job")

    assert queue.get(uuid4()) is None
    for malformed in ("nonsense", "", "a\0b", "ö" * 40):
        with pytest.raises(InvalidTaskId):
            queue.get(malformed)


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
def test_acting_on_an_unknown_or_malformed_id_is_not_found(queue: Face, action: str):
    for unknown in (uuid4(), "nonsense"):
        with pytest.raises(TaskNotFound, match=str(unknown)):
            getattr(queue, action)(unknown)


def test_lists_are_newest_first(queue: Face):
    for n in range(3):
        queue.enqueue("job", n)

    assert numbers(queue) == [2, 1, 0]


def test_a_list_holds_at_most_its_limit(queue: Face):
    for n in range(4):
        queue.enqueue("job", n)

    assert (numbers(queue, limit=2), numbers(queue, limit=0)) == ([3, 2], [])


def test_offset_skips_the_newest(queue: Face):
    for n in range(4):
        queue.enqueue("job", n)

    assert (numbers(queue, offset=1, limit=2), numbers(queue, offset=9)) == ([2, 1], [])


def test_pages_by_key_cover_everything_once_while_others_insert(queue: Face):
    for n in range(5):
        queue.enqueue("job", n)

    first = queue.list(limit=2)
    queue.enqueue("job", 99)
    second = queue.list(limit=2, before=first[-1])
    third = queue.list(limit=2, before=second[-1])

    assert [task.payload for task in first + second + third] == [4, 3, 2, 1, 0]
    assert queue.list(before=third[-1]) == []


def test_paging_goes_with_filters(queue: Face):
    for n in range(6):
        queue.enqueue("even" if n % 2 == 0 else "odd", n)

    first = queue.list(name="odd", limit=2)

    assert [task.payload for task in first] == [5, 3]
    assert numbers(queue, name="odd", before=first[-1]) == [1]


@pytest.mark.parametrize(
    "wrong", [{"limit": -1}, {"limit": True}, {"offset": -1}, {"limit": "9"}, {"before": UUID(int=7)}], ids=str
)
@pytest.mark.backends("sqlite-memory")
def test_a_page_that_makes_no_sense_is_refused(queue: Face, wrong: dict[str, Any]):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        queue.list(**wrong)


def test_each_state_finds_its_own(queue: Face, one_of_each: dict[str, Any]):
    found = {state: {task.id for task in queue.list(state=state)} for state in [*one_of_each]}

    expected = {name: {task_id} for name, task_id in one_of_each.items()}
    expected["pending"] |= expected["delayed"]
    expected["failed"] |= expected["retrying"]
    assert found == expected


def test_states_together_are_a_union(queue: Face, one_of_each: dict[str, Any]):
    wanted = ["retrying", "running", "delayed", "completed"]

    assert {task.id for task in queue.list(state=wanted)} == {one_of_each[name] for name in wanted}


def test_an_unknown_state_or_filter_is_refused_with_the_known_ones(queue: Face):
    with pytest.raises(ConfigurationError, match=r"'sleeping'.*pending"):
        queue.list(state="sleeping")
    with pytest.raises(ConfigurationError, match=r"colour.*tags"):
        queue.count(colour="red")


@pytest.mark.parametrize(
    "name, wrong, remedy",
    [
        ("created_after", datetime(2030, 1, 1), "time zone"),  # noqa: DTZ001  that is the mistake
        ("completed_before", "2030-01-01", "datetime"),
        ("name", ["job"], "string"),
        ("unique_key", 7, "string"),
        ("search", 7, "string"),
        ("tags", ["daily"], "mapping"),
        ("arguments", "a", "mapping"),
        ("arguments", {7: 1}, "text"),
        ("ids", UUID(int=7), "several ids"),
        ("state", 7, "pending"),
    ],
)
def test_a_filter_of_another_kind_is_refused_and_changes_nothing(queue: Face, name: str, wrong: Any, remedy: str):
    task_id = queue.enqueue("job")

    for act in (queue.list, queue.count, queue.cancel_many):
        with pytest.raises(ConfigurationError, match=remedy):
            act(**{name: wrong})
    assert queue.read(task_id).state == "pending"


@pytest.mark.backends("sqlite-memory")
def test_a_task_function_as_a_name_is_answered_with_its_name(queue: Face):
    job = queue.task(name="mail.send")(lambda: None)

    with pytest.raises(ConfigurationError, match=r"write 'mail\.send'"):
        queue.list(name=job)


def test_filters_each_narrow_the_list(queue: Face):
    queue.enqueue("job", 1, tags={"batch": "daily"}, unique_key="u", concurrency_key="c")
    wanted = queue.enqueue("job", 2, tags={"batch": "weekly", "n": 1}, unique_key="v", concurrency_key="d")
    queue.enqueue("other", 3, tags={"batch": "daily"})

    assert numbers(queue, name="job") == [2, 1]
    assert numbers(queue, tags={"batch": "daily"}) == [3, 1]
    assert numbers(queue, unique_key="v") == [2]
    assert numbers(queue, concurrency_key="d") == [2]
    assert numbers(queue, ids=[wanted, str(wanted), uuid4()]) == [2]
    assert numbers(queue, ids=[]) == []
    assert numbers(queue, name="job", tags={"batch": "daily"}, state="pending") == [1]


def test_a_tag_matches_by_value_and_type(queue: Face):
    values = ["1", 1, True, None, 1.5, "true", ""]
    for n, value in enumerate(values):
        queue.enqueue("job", n, tags={"x": value, "y": 0})

    assert [numbers(queue, tags={"x": value}) for value in values] == [[n] for n in range(len(values))]
    assert numbers(queue, tags={"z": None}) == []
    assert numbers(queue, tags={"x": 1, "y": 1}) == []


def test_a_tag_that_is_an_object_matches_by_what_it_holds(queue: Face):
    queue.enqueue("job", 1, tags={"owner": {"team": "a", "region": {"zone": 1}}})
    queue.enqueue("job", 2, tags={"owner": {"team": "b"}})

    assert numbers(queue, tags={"owner": {"region": {"zone": 1}}}) == [1]
    assert numbers(queue, tags={"owner": {"region": {"zone": 1}, "team": "a"}}) == [1]
    assert numbers(queue, tags={"owner": {}}) == [2, 1]
    assert numbers(queue, tags={"owner": "a"}) == []


def test_search_looks_into_payload_tags_and_error_whatever_the_case(queue: Face):
    queue.enqueue("job", {"to": "Alice@Example.com"})
    queue.enqueue("job", {"to": "bob"}, tags={"note": "for alice"})
    failed = queue.task_in(Phase.PENDING, "failing")
    worker = queue.worker("failing")
    worker.give_up(worker.take(failed.id), error="ValueError: ALICE is unknown")

    assert queue.count(search="alice") == 3
    assert queue.count(search="bob") == 1
    assert queue.count(search="%") == queue.count(search="_ob") == 0


def test_search_terms_look_at_single_arguments_tags_workers_and_times(queue: Face):
    worker = queue.worker("job")
    worker.beat(release="1.4.2")
    queue.advance(10)
    for number in range(3):
        payload = {"order": {"id": number, "lines": [{"sku": f"s{number}"}]}, "paid": number > 0, "note": None}
        worker.complete(
            worker.take(queue.enqueue("job", payload, tags={"team": "a"})), started_ago=number * 2, ended_ago=0
        )
    failing = queue.enqueue("job", {"order": {"id": "42 é", "0": "zero"}})
    worker.give_up(worker.take(failing))

    def found(search: str, **more: Any) -> list[Any]:
        return [task.payload["order"]["id"] for task in queue.list(search=search, **more)]

    assert found("args.order.id:1") == found("args.order.lines[0].sku:s1") == found("args.order.lines.0.sku:s1") == [1]
    assert found("args.paid:true") == [2, 1]
    assert found("args.note:null") == [2, 1, 0]
    assert found('args.order.id:"42 é"') == found("args.order.0:zero") == ["42 é"]
    assert found("args.order:x") == found("args.order.lines:x") == found("args.order.id:") == []
    assert found("", arguments={"order.id": 2, "paid": True}) == [2]
    assert found("tag.team:a args.paid:false") == [0]
    assert found(f"worker:{worker.worker_id}") == ["42 é", 2, 1, 0]
    assert found("worker:nobody") == found("release:1.4.1") == []
    assert found("release:1.4.2") == ["42 é", 2, 1, 0]
    assert found("duration:>1s duration:>3s") == [2]
    assert found("duration:1s..3s") == [1]
    assert found("duration:<500ms args.paid:false") == [0]
    queue.advance(30)
    assert found("wait:<1s s2") == [2]
    assert found("wait:>1s") == []
    assert found("", completed_after=queue.now - timedelta(seconds=20)) == []


@pytest.mark.parametrize("search", ["duration:5x", "wait:..", "duration:5s..1s", "args.a..b:1", "args.1.2.3.4.5:x"])
def test_a_search_term_that_means_nothing_is_refused_with_the_remedy(queue: Face, search: str):
    with pytest.raises(ConfigurationError, match="write"):
        queue.list(search=search)


def test_times_bound_the_list(queue: Face):
    queue.enqueue("job", 1)
    middle = queue.advance(10)
    queue.enqueue("job", 2)
    end = queue.advance(10)

    assert numbers(queue, created_after=middle) == [2]
    assert numbers(queue, created_before=middle) == [1]
    assert numbers(queue, created_after=middle, created_before=end) == [2]
    assert numbers(queue, completed_before=end) == []


def test_completed_before_finds_what_ended_before(queue: Face):
    queue.task_in(Phase.COMPLETED)

    assert queue.count(completed_before=queue.now - timedelta(seconds=1)) == 0
    assert queue.count(completed_before=queue.now + timedelta(seconds=1)) == 1


def test_count_counts_what_list_would_find(queue: Face, one_of_each: dict[str, Any]):
    assert queue.count() == len(one_of_each)
    assert queue.count(state=["failed", "cancelled"], name="job") == 3
    assert queue.count(name="other") == 0


def test_stats_say_how_many_stand_where(queue: Face, one_of_each: dict[str, Any]):
    queue.enqueue("other", delay_seconds=1)

    stats = queue.stats()

    assert (stats.pending, stats.running, stats.completed, stats.failed) == (3, 1, 1, 2)
    assert (stats.cancelled, stats.buried, stats.delayed, stats.retrying) == (1, 1, 2, 1)
    assert stats.total == len(one_of_each) + 1
    zeros = dict.fromkeys(["running", "completed", "failed", "cancelled", "buried", "waiting", "retrying"], 0)
    assert stats.by_name["other"] == {"pending": 1, "delayed": 1, **zeros}
    assert stats.by_name["job"]["failed"] == 2


def test_stats_of_an_empty_queue_are_zero(queue: Face):
    stats = queue.stats()

    assert (stats.total, stats.delayed, stats.retrying, dict(stats.by_name)) == (0, 0, 0, {})


def test_a_delayed_task_stops_being_delayed_when_its_time_comes(queue: Face):
    queue.enqueue("job", delay_seconds=10)
    assert queue.stats().delayed == queue.count(state="delayed") == 1

    queue.advance(10)

    assert queue.stats().delayed == queue.count(state="delayed") == 0


def test_the_names_of_waiting_tasks_are_known_without_those_of_others(queue: Face):
    queue.task_in(Phase.COMPLETED)
    for name in ("a", "b", "b", "c"):
        queue.enqueue(name)
    queue.enqueue("d", delay_seconds=3600)
    queue.enqueue("keyed", concurrency_key="k")
    queue.cancel(queue.enqueue("e"))

    assert sorted(queue.do(waiting_names)) == ["a", "b", "c", "d", "keyed"]
