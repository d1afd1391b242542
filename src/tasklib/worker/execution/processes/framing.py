"""Messages between a worker and its child processes: JSON with its length in front, over a pair of sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Protocol

HEADER = 4
CHUNK = 1 << 18

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def frame(message: Any) -> bytes:
    """The message as it travels.  The standard library's JSON, because it carries what only one database refused."""
    body = _encode(message).encode()
    return len(body).to_bytes(HEADER, "big") + body


class Frames:
    """Puts messages together from the pieces in which they arrive."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are complete now."""
        rest = self._rest
        if not rest and len(data) == HEADER + int.from_bytes(data[:HEADER], "big"):
            return [json.loads(data[HEADER:].decode())]  # the usual case: one message, whole
        rest += data
        messages: list[Any] = []
        start = 0
        while len(rest) - start >= HEADER:
            end = start + HEADER + int.from_bytes(rest[start : start + HEADER], "big")
            if end > len(rest):
                break
            messages.append(json.loads(rest[start + HEADER : end].decode()))
            start = end
        del rest[:start]
        return messages


class Channel:
    """The child's end: receiving waits, and sending may be done by any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = Frames()
        self._waiting: deque[Any] = deque()
        self._taking = threading.Lock()
        self._sending = threading.Lock()

    def receive(self) -> Any:
        """The next message; None when the worker has no more."""
        with self._taking:
            while not self._waiting:
                data = self._socket.recv(CHUNK)
                if not data:
                    return None
                self._waiting.extend(self._frames.feed(data))
            return self._waiting.popleft()

    def drop_waiting(self) -> int:
        """Drop the messages that nobody has received yet, and say how many; from another thread than receives."""
        if not self._taking.acquire(blocking=False):
            return 0  # one is just being received
        try:
            with suppress(BlockingIOError):
                while data := self._socket.recv(CHUNK, socket.MSG_DONTWAIT):
                    self._waiting.extend(self._frames.feed(data))
            count = len(self._waiting)
            self._waiting.clear()
            return count
        finally:
            self._taking.release()

    def send(self, message: Any) -> None:
        """Send a message; one that nobody can receive any more is dropped, because this process is about to end."""
        data = frame(message)
        with self._sending, suppress(OSError):
            self._socket.sendall(data)

    def close(self) -> None:
        """Let go of the descriptor, as a fork of this process must: the worker would take it for this one."""
        self._socket.close()


class PipeListener(Protocol):
    """Who gets what arrives through a Pipe, within its event loop."""

    def received(self, message: Any) -> None:
        """A message has arrived."""

    def hung_up(self) -> None:
        """The other end is closed: nothing more arrives."""


class Pipe:
    """The worker's end, on its event loop: nothing waits."""

    __slots__ = ("_closed", "_frames", "_listener", "_loop", "_socket", "_unsent")

    def __init__(self, connection: socket.socket, listener: PipeListener) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._listener = listener
        self._frames = Frames()
        self._unsent = bytearray()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._read)

    def send(self, message: Any) -> None:
        """Send a message, now or as soon as there is room."""
        self._unsent += frame(message)
        if len(self._unsent) and not self._write():
            self._loop.add_writer(self._socket, self._write_more)

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        """Read what the other end had sent before it ended."""
        while not self._closed and self._read():
            pass

    def close(self) -> None:
        """Close the connection."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _read(self) -> bool:
        """Take in one piece; False if there is none now or will be none any more."""
        try:
            data = self._socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            self._listener.hung_up()
            return False
        for message in self._frames.feed(data):
            self._listener.received(message)
        return True

    def _write(self) -> bool:
        """Send what fits; True when nothing is left."""
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            sent = len(self._unsent)  # nobody reads it any more; the end of the process is noticed elsewhere
        del self._unsent[:sent]
        return not self._unsent

    def _write_more(self) -> None:
        if self._write():
            self._loop.remove_writer(self._socket)
