"""Messages between a supervisor and one of its worker processes; sending never waits.

A worker process sends `hello` once; then `tick` from its event loop, with the instance it is registered as and the time
of the last heartbeat that it sent itself; `report` with its counts since it started; and `ending` when its work is
done. The supervisor sends `beat` for each heartbeat it has sent on behalf of that instance, and `stop`.  A message is
dropped if there is no room for it: ticks, reports and beats are repeated, and a process that does not stop is killed.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from tasklib.worker.execution.running_table import RunningTable
from tasklib.worker.messages import Channel

VARIABLE = "TASKLIB_SUPERVISOR"
"""The environment variable with the descriptors of the channel and of the table of running tasks, and the restarts."""

Message = dict[str, Any]


def channel_to_supervisor() -> SupervisorChannel | None:
    """The channel to the supervisor that started this process, if one did; call it once, before user code runs."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return None
    descriptor, table, restarts = map(int, given.split(":"))
    connection = socket.socket(fileno=descriptor)
    # This process's own children must not inherit them.
    connection.set_inheritable(False)
    os.set_inheritable(table, False)
    return SupervisorChannel(connection, RunningTable(table), restarts)


class SupervisorChannel(Channel):
    """One end of the channel, and the table of running tasks."""

    def __init__(self, connection: socket.socket, running: RunningTable, restarts: int = 0) -> None:
        super().__init__(connection)
        self.running = running
        """What the worker process runs; both ends see it."""
        self.restarts = restarts
        """How many processes this one replaces, one after the other."""

    @classmethod
    def pair(cls) -> tuple[SupervisorChannel, socket.socket]:
        """Our end, and the one for a new process."""
        ours, theirs = socket.socketpair()
        return cls(ours, RunningTable.create()), theirs

    def notify(self, kind: str, **fields: Any) -> None:
        """Send a message, unless there is no room for it."""
        if self.flush():
            self.post({"kind": kind, **fields})

    def close(self) -> None:
        """Close this end."""
        super().close()
        self.running.close()
