"""The line between a supervisor and one of its worker processes: a JSON object per line, and nobody waits.

A worker process says `hello` once, then `tick` from its event loop, with the instance it lives as, and `ending` when
its work is done.  The supervisor answers with `beat` for each heartbeat it has sent in that instance's name, and says
`stop`.  A line that does not fit into the socket is dropped: ticks and beats repeat themselves, and a process that does
not stop is ended.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from typing import Any

from tasklib.worker.execution.running_table import RunningTable

VARIABLE = "TASKLIB_SUPERVISOR"
"""Tells a worker process its line to the supervisor, its table of running tasks, and the how manyth it is."""
CHUNK = 65_536

Message = dict[str, Any]


def channel_to_supervisor() -> Channel | None:
    """The line to the supervisor that started this process, if one did; asked for once, before user code runs."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return None
    descriptor, table, restarts = map(int, given.split(":"))
    connection = socket.socket(fileno=descriptor)
    # Not for this process's own children.
    connection.set_inheritable(False)
    os.set_inheritable(table, False)
    return Channel(connection, RunningTable(table), restarts)


class Channel:
    """One end of the line; usable from any thread."""

    def __init__(self, connection: socket.socket, running: RunningTable, restarts: int = 0) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._unsent = b""
        self._heard = b""
        self.is_cut = False
        """True once the other end is gone."""
        self.running = running
        """What the worker process runs; both ends see it."""
        self.restarts = restarts
        """How many processes the supervisor has started in this one's place before it."""

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Our end, and the one to hand to a new process."""
        ours, theirs = socket.socketpair()
        return cls(ours, RunningTable.create()), theirs

    def fileno(self) -> int:
        """The descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Say something, if there is room for it."""
        line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        with self._sending, suppress(OSError):
            # The rest of a line that was sent in part goes first, or the other end could not tell lines apart.
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if not self._unsent:
                self._unsent = line[self._socket.send(line) :]

    def receive(self) -> list[Message]:
        """What was said since the last time; nothing, and `is_cut`, when the other end is gone."""
        with self._receiving:
            while not self.is_cut:
                try:
                    chunk = self._socket.recv(CHUNK)
                except BlockingIOError:
                    break
                except OSError:
                    chunk = b""
                self._heard += chunk
                self.is_cut = not chunk
            *lines, self._heard = self._heard.split(b"\n")
            return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Hang up."""
        with self._sending, self._receiving:
            self._socket.close()
            self.running.close()
            self.is_cut = True
