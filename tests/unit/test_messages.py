"""Messages between the processes of a worker: whole, in order, and returned when they are recalled."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasklib.worker import messages
from tasklib.worker.messages import RECALL, Channel, Inbox
from tests.fixtures.waiting import PATIENCE

LARGE = ["x" * 1_000_000, "line\nbreak", "\u00e4\ud800"]


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    here, there = map(Channel, socket.socketpair())
    yield here, there
    here.close()
    there.close()


def test_messages_that_are_put_are_sent_together_and_in_order(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    for number in range(3):
        here.put([number, "line\nbreak"])
    assert there.receive() == []

    assert not here.is_full
    assert here.flush()
    assert there.receive() == [[0, "line\nbreak"], [1, "line\nbreak"], [2, "line\nbreak"]]


@pytest.mark.parametrize("makes_encoders", [True, False])
def test_every_message_is_one_line_whatever_json_module_this_python_has(
    monkeypatch: pytest.MonkeyPatch, makes_encoders: bool
) -> None:
    if not makes_encoders:
        monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    message = {"list": [1, 0.1, None, True, float("inf")], "text": LARGE[1:], "empty": [[], {}]}
    text = messages._encoder()(message)

    assert text == json.dumps(message, separators=(",", ":"))
    assert "\n" not in text


def test_a_message_larger_than_the_socket_arrives_whole(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    received = []
    is_sent = here.post(LARGE)
    assert not is_sent
    assert here.is_full
    while not is_sent:
        received += there.receive()
        is_sent = here.flush()
    while not received:
        received += there.receive()

    assert received == [LARGE]
    assert there.receive() == []
    assert not there.is_closed


def test_what_was_sent_before_the_end_is_received(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send([1])
    here.finish()

    assert (there.receive(), there.receive(), there.is_closed) == ([[1]], [], True)


def test_what_was_not_taken_before_a_recall_is_returned_and_what_follows_it_stays(
    ends: tuple[Channel, Channel],
) -> None:
    here, there = ends
    inbox = Inbox(there)
    for message in (1, 2, 3, RECALL, 4):
        here.send(message)

    assert (inbox.take(), inbox.drop_recalled(), inbox.take()) == (1, [2, 3], 4)


def test_a_recall_that_comes_after_everything_was_taken_returns_nothing(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    inbox = Inbox(there)
    with ThreadPoolExecutor() as threads:
        taken = threads.submit(inbox.take)
        dropped = threads.submit(inbox.drop_recalled)
        here.send(RECALL)
        assert dropped.result(PATIENCE) == []
        here.send(5)
        assert taken.result(PATIENCE) == 5


def test_nothing_waits_for_an_end_that_is_closed(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    inbox = Inbox(there)
    here.finish()

    assert inbox.take() is None
    assert inbox.drop_recalled() == []
