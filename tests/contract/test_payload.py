"""What may be stored is the same on every database, and comes back equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tasklib import Config, InvalidPayload
from tests.fixtures.queues import Face, Instance, open_queue

REFUSED = {
    "nul": "a\0b",
    "nul in a key": {"a\0b": 1},
    "lone surrogate": "\ud800",
    "lone surrogate in a key": {"\udfff": 1},
    "nan": float("nan"),
    "infinity": [float("inf")],
    "minus infinity": {"deep": [{"x": float("-inf")}]},
    "no json": object(),
}
KEPT = {
    "large integer": 2**80,
    "small float": 1e-300,
    "large float": 1.5e300,
    "float that is whole": 3.0,
    "emoji": "\U0001f600 é",
    "quotes": 'it\'s "quoted" \\ back',
    "controls": "\t\n\r\x01",
    "escaped nul as text": "\\u0000",
    "nested": {"a": [1, {"b": [None, True, "x"]}]},
    "keys like ours": {"id": "x", "version": "y", "$": 1, "a.b": 2, "": 3},
    "empty": {"list": [], "object": {}, "text": ""},
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
@pytest.mark.backends("sqlite-memory", "postgres-newest")
def test_json_that_one_database_refuses_is_refused_on_all(queue: Face, value: Any):
    with pytest.raises(InvalidPayload, match="nothing was stored"):
        queue.enqueue("job", {"value": value})
    assert queue.count() == 0


def test_json_comes_back_equal_and_of_the_same_types(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", KEPT, tags=KEPT, headers=KEPT)

    task, claimed = queue.read(task_id), worker.take(task_id)

    assert repr(_sorted(task.kwargs)) == repr(_sorted(claimed.kwargs)) == repr(_sorted(KEPT))
    assert (task.tags, task.headers, claimed.headers) == (KEPT, KEPT, KEPT)


def test_a_result_comes_back_equal_and_of_the_same_types(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.complete(worker.take(task_id), KEPT)

    assert repr(_sorted(queue.read(task_id).result)) == repr(_sorted({"value": KEPT}))


@pytest.mark.parametrize("place", ["tags", "headers"])
def test_tags_and_headers_follow_the_same_rules(queue: Face, place: str):
    with pytest.raises(InvalidPayload, match=place):
        queue.enqueue("job", **{place: {"a": "\0"}})
    assert queue.count() == 0


def test_a_payload_up_to_the_limit_is_stored_and_one_byte_more_is_not(database_url: str):
    with open_queue(database_url, max_payload_bytes=1000) as queue:
        fits = {"x": "a" * (1000 - len('{"x":""}'))}

        assert queue.read(queue.enqueue("job", fits)).kwargs == fits
        with pytest.raises(InvalidPayload, match="1,000"):
            queue.enqueue("job", {"x": fits["x"] + "a"})
        assert queue.count() == 1


def test_the_limit_counts_bytes_not_characters(database_url: str):
    with open_queue(database_url, max_payload_bytes=1000) as queue:
        with pytest.raises(InvalidPayload, match="limit"):
            queue.enqueue("job", {"x": "é" * 500})
        assert queue.count() == 0


def test_a_megabyte_is_stored_by_default(queue: Face):
    payload = {"x": "a" * (Config(queue.url).max_payload_bytes - 10)}

    assert queue.read(queue.enqueue("job", payload)).kwargs == payload


def _sorted(value: Any) -> Any:
    """The value with its keys in one order, which JSON does not promise."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def test_a_handler_may_be_a_mock_or_an_object_without_a_hash(queue: Face):
    @dataclass
    class Add:
        amount: int

        def __call__(self, payload: int) -> int:
            return payload + self.amount

    queue.plain.register_handler("add", Add(2))
    queue.plain.register_handler("answer", mock := AsyncMock(return_value=42))
    ids = [queue.enqueue("add", 40), queue.enqueue("answer", "why")]

    assert queue.process_batch() == 2
    assert [queue.read(task_id).result for task_id in ids] == [{"value": 42}, {"value": 42}]
    mock.assert_awaited_once_with("why")
