"""Messages between the processes of a worker: JSON, one per line, over a pair of sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice, takewhile
from json import encoder
from typing import Any

CHUNK = 1 << 18


def _encoder() -> Callable[[Any], str]:
    """The standard library's JSON, because it also carries values that one of the databases refuses; it escapes line
    breaks.

    Its `encode` makes an encoder in C for each call, which takes three times as long as a short message.  Where it can
    be made once, it is.
    """
    plain = json.JSONEncoder(separators=(",", ":"), check_circular=False)
    try:
        once = encoder.c_make_encoder(  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            None, plain.default, encoder.encode_basestring_ascii, None, ":", ",", False, False, True
        )
        once([1, "a"], 0)
    except (AttributeError, TypeError):  # not in every Python
        return plain.encode
    return lambda message: "".join(once(message, 0))


_encode = _encoder()


class Channel:
    """One end of a connection between two processes; usable from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._unsent = bytearray()
        self._received = b""
        self.is_closed = False
        """True once the other end is closed and everything it sent was received."""

    def fileno(self) -> int:
        """The descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Send a message, waiting until there is room for it; dropped if the other end is closed."""
        data = f"{_encode(message)}\n".encode()
        with self._sending:
            try:  # noqa: SIM105  `suppress` takes as long as the rest
                self._socket.sendall(data)
            except OSError:
                pass

    def post(self, message: Any) -> bool:
        """Send a message without waiting; False if `flush` must send the rest of it."""
        self.put(message)
        return self.flush()

    def put(self, message: Any) -> None:
        """Queue a message for the next `flush`, which sends it together with others."""
        with self._sending:
            self._unsent += f"{_encode(message)}\n".encode()

    @property
    def is_full(self) -> bool:
        """Whether more waits to be sent than the other end reads at a time."""
        return len(self._unsent) >= CHUNK

    def flush(self) -> bool:
        """Send as much as there is room for; True when nothing is left."""
        with self._sending:
            if self._unsent:
                try:
                    sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return False
                except OSError:
                    sent = len(self._unsent)  # The other end is closed; the end of the process is noticed elsewhere.
                del self._unsent[:sent]
            return not self._unsent

    def receive(self, *, wait: bool = False) -> list[Any]:
        """The messages that have arrived; waits for more of them, if asked to."""
        flags = 0 if wait else socket.MSG_DONTWAIT
        with self._receiving:
            while True:
                try:
                    data = self._socket.recv(CHUNK, flags)
                except BlockingIOError:
                    break
                except OSError:
                    data = b""
                self._received += data
                self.is_closed = not data
                if len(data) < CHUNK:
                    break  # Nothing more has arrived.
                flags = socket.MSG_DONTWAIT
            *lines, self._received = self._received.split(b"\n")
            # As one array: parsing each message by itself takes longer.
            messages: list[Any] = json.loads(f"[{b','.join(lines).decode()}]")
            return messages

    def finish(self) -> None:
        """Close this side: the other end reads the end of the stream."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        with self._sending, self._receiving:
            self._socket.close()
            self.is_closed = True


RECALL = ["recall"]
"""Sent after messages that are to be returned, unless they were taken before."""


class Inbox:
    """Messages that a process takes one at a time, unless the other end recalls them first."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: deque[Any] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._answers: dict[int, list[Any]] = {}

    def take(self) -> Any:
        """Wait for the next message; None when there are no more."""
        with self._lock:
            while True:
                if not self._waiting:
                    self._receive()
                    if self._channel.is_closed:
                        return None
                elif self._waiting[0] == RECALL:
                    self._changed.wait()  # Another thread answers it.
                else:
                    return self._waiting.popleft()

    def answer(self, number: int) -> list[Any] | None:
        """Wait for the answer to the question with this number; None when the other end is gone."""
        with self._changed:
            while number not in self._answers:
                if self._channel.is_closed:
                    return None
                self._receive()
            return self._answers.pop(number)

    def _receive(self) -> None:
        """Wait for messages; answers are stored separately."""
        for message in self._channel.receive(wait=True):
            match message:
                case ["answer", number, *answer]:
                    self._answers[number] = answer
                case _:
                    self._waiting.append(message)

    def drop_recalled(self) -> list[Any]:
        """Remove and return the messages before the next RECALL that were not taken yet; called in another thread."""
        with self._changed:
            while RECALL not in self._waiting and not self._channel.is_closed:
                self._receive()
            dropped = list(takewhile(lambda message: message != RECALL, self._waiting))
            self._waiting = deque(islice(self._waiting, len(dropped) + 1, None))
            self._changed.notify()
            return dropped
