"""On a machine of a cluster: tasks run in a child process of the engine's own process, so that each can be ended.

An engine such as Dask runs functions in threads, which cannot be killed.  So the engine calls `run` below, which gives
the task to a child process like a worker's own, passes on its messages, and ends it on request.  The child ends with
the engine's process, however that ends.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tasklib.core.codec import dumps
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.processes.orphan_killer import OrphanKiller
from tasklib.worker.execution.processes.os_process import TERM_SECONDS, Death, start_child
from tasklib.worker.messages import Channel

LOOK_SECONDS: Final = 0.1
"""How often to check whether the task must end."""

SAID: Final = ("log", "progress", "line")
"""The kinds of messages that are passed on as they come."""

NO_WORKFLOWS: Final = (
    "steps, waits and children cannot run on a cluster: what they record goes through the worker, and the worker is on "
    "another machine. Give this task to a worker without --executor, and let its steps submit tasks that run there"
)

Message = list[Any]
Job = Sequence[Any]
"""The fields of a task, its claim, and where its function is."""

_of_thread = threading.local()
"""The child of each thread: the kernel ends a child with the thread that has started it."""
_orphan_killer = OrphanKiller()
_starting = threading.Lock()
_stopped: set[str] = set()
"""Keys of tasks that `stop` was called for."""


def run(
    key: str,
    introduction: Mapping[str, Any],
    job: Job,
    *,
    report: Callable[[Message], None],
    is_unwanted: Callable[[], bool],
) -> Message:
    """Run one task to its end, and return how it ended; when this returns or raises, nothing of the task runs any more.

    `report` receives its messages meanwhile; the task is ended once `is_unwanted` is true or `stop` was called with its
    key.
    """
    child: NodeChild | None = None
    try:
        child = _child_for(introduction)
        ended = child.run(job, report, lambda: key in _stopped or is_unwanted())
        if not child.is_leaving:
            child = None  # It stays for the next task.
        return ended
    finally:
        _stopped.discard(key)
        if child is not None:
            _of_thread.child = None
            child.end()
            child.close()


def stop(key: str) -> None:
    """End the task with this key, whether it runs in this process now or is still to come."""
    _stopped.add(key)


class NodeChild:
    """A child process, and the one task it runs."""

    def __init__(self, introduction: Mapping[str, Any]) -> None:
        self.introduction = dumps(dict(introduction))
        self.is_leaving = False
        self._loaded: set[str] = set()
        work, theirs = socket.socketpair()
        self._lifeline, their_lifeline = socket.socketpair()
        try:
            self._process = start_child((theirs.fileno(), their_lifeline.fileno()))
        finally:
            theirs.close()
            their_lifeline.close()
        with _starting:
            _orphan_killer.watch(self._process.pid)
        self._channel = Channel(work)
        self._channel.send(_as_here(introduction))

    @property
    def is_alive(self) -> bool:
        """Whether it can be given a task."""
        return not self.is_leaving and self._process.poll() is None

    def run(self, job: Job, report: Callable[[Message], None], must_end: Callable[[], bool]) -> Message:
        """Give it the task, and wait for its end."""
        name = ClaimedTask(*job[:2]).name
        report(["at", self._process.pid, socket.gethostname()])
        if name in self._loaded:
            report(["begun"])
        self._channel.send(list(job))
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while True:
            poll.poll(LOOK_SECONDS * 1000)
            for message in self._channel.receive():
                match message[0]:
                    case "begun":
                        self._loaded.add(name)
                        report(message)
                    case kind if kind in SAID:
                        report(message)
                    case "ask":
                        self._channel.send(["answer", message[1], False, "ConfigurationError", NO_WORKFLOWS])
                    case "leaving":
                        self.is_leaving = True
                    case kind:
                        self.is_leaving |= kind == "unloadable"
                        ended: Message = message
                        return ended
            if self._channel.is_closed:
                return self._died()
            if must_end():
                self.is_leaving = True
                self.end()
                for message in self._channel.receive():
                    if message[0] in SAID:
                        report(message)
                return ["stopped"]

    def end(self) -> None:
        """End it and everything it has started, by SIGTERM and then SIGKILL; nothing of it is left when this
        returns."""
        while True:
            try:
                return self._end()
            except KeyboardInterrupt:
                continue  # An engine that interrupts does so more than once.

    def close(self) -> None:
        """Close the connections to it once it has ended."""
        self._channel.close()
        self._lifeline.close()

    def _end(self) -> None:
        with suppress(OSError):
            self._lifeline.send(b"e")
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TERM_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()
        with _starting:
            _orphan_killer.forget(self._process.pid)

    def _died(self) -> Message:
        self.is_leaving = True
        code = self._process.wait()
        return ["died", Death(code, 0).how, self._process.pid, code]

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _child_for(introduction: Mapping[str, Any]) -> NodeChild:
    """The child of this thread, or a new one if it has none, or one for another program."""
    child: NodeChild | None = getattr(_of_thread, "child", None)
    if child is not None and (not child.is_alive or child.introduction != dumps(dict(introduction))):
        _of_thread.child = None
        child.end()
        child.close()
        child = None
    if child is None:
        child = _of_thread.child = NodeChild(introduction)
    return child


def _as_here(introduction: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's introduction of its program, adapted to this machine."""
    main = introduction["main"]
    path = main.get("init_main_from_path")
    folder = introduction["folder"]
    return {
        **introduction,
        # This machine's own path first: the worker's may belong to another environment.
        "sys_path": [*sys.path, *(each for each in introduction["sys_path"] if each not in sys.path)],
        "python_path": os.environ.get("PYTHONPATH"),
        "folder": folder if folder is not None and os.path.isdir(folder) else None,
        "main": main if path is None or os.path.isfile(path) else {},
    }
