"""Messages between a supervisor and one of its worker processes: JSON, one object per line; sending never blocks.

A worker process sends `hello` once, then `tick` from its event loop, with the instance it is registered as, and
`ending` when its work is done.  The supervisor sends `beat` for each heartbeat it has sent on behalf of that instance,
and `stop`.  A message that does not fit into the socket is dropped: ticks and beats are repeated, and a process that
does not stop is killed.
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
"""The environment variable with the descriptors of the channel and of the table of running tasks, and the restarts."""
CHUNK = 65_536

Message = dict[str, Any]


def channel_to_supervisor() -> Channel | None:
    """The channel to the supervisor that started this process, if one did; call it once, before user code runs."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return None
    descriptor, table, restarts = map(int, given.split(":"))
    connection = socket.socket(fileno=descriptor)
    # This process's own children must not inherit them.
    connection.set_inheritable(False)
    os.set_inheritable(table, False)
    return Channel(connection, RunningTable(table), restarts)


class Channel:
    """One end of the channel; usable from any thread."""

    def __init__(self, connection: socket.socket, running: RunningTable, restarts: int = 0) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._unsent = b""
        self._received = b""
        self.is_closed = False
        """True once the other end is closed."""
        self.running = running
        """What the worker process runs; both ends see it."""
        self.restarts = restarts
        """How many processes this one replaces, one after the other."""

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Our end, and the one for a new process."""
        ours, theirs = socket.socketpair()
        return cls(ours, RunningTable.create()), theirs

    def fileno(self) -> int:
        """The descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message, unless the socket is full."""
        line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        with self._sending, suppress(OSError):
            # The rest of a line that was sent in part goes first, or the other end would read two lines as one.
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if not self._unsent:
                self._unsent = line[self._socket.send(line) :]

    def receive(self) -> list[Message]:
        """The messages since the last call; `is_closed` is set when the other end is closed."""
        with self._receiving:
            while not self.is_closed:
                try:
                    chunk = self._socket.recv(CHUNK)
                except BlockingIOError:
                    break
                except OSError:
                    chunk = b""
                self._received += chunk
                self.is_closed = not chunk
            *lines, self._received = self._received.split(b"\n")
            return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end."""
        with self._sending, self._receiving:
            self._socket.close()
            self.running.close()
            self.is_closed = True
