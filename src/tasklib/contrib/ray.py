"""Task bodies on a Ray cluster: `@task(executor="ray", resources={"num_gpus": 1})`, `tasklib worker --executor ray`.

Each body is a Ray task without retries, and runs in a child process of the Ray worker that it was given.  `resources`
are the options of a Ray task: `num_cpus`, `num_gpus`, `memory`, `resources`, `runtime_env` and the rest.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tasklib.worker.execution.cluster import ClusterExecutor
from tasklib.worker.execution.cluster_body import Body
from tasklib.worker.execution.processes import node

__all__ = ["EXECUTOR", "RayExecutor"]

FLUSH_SECONDS: Final = 0.2
"""How often a body's reports are sent; the last ones come with its end."""
ASK_SECONDS: Final = 1.0
"""How often the driver asks for reports, and how often a body asks whether it still does."""
SILENCE_SECONDS: Final = 20.0
"""A body ends when its driver has asked for no reports for so long; Ray itself notices only after a minute."""
PROBE_SECONDS: Final = 3.0
"""How long the head of the cluster may take to accept a connection."""
REPLY_SECONDS: Final = 10.0
"""How long the mailbox may take to answer."""


class RayExecutor(ClusterExecutor):
    """Sends bodies to the cluster at `--scheduler`, or where RAY_ADDRESS says, or to the one on this machine."""

    engine = "ray"

    def reach(self) -> None:
        """Ray itself would try for a minute, and then end this process."""
        given = _endpoint(self.scheduler or os.environ.get("RAY_ADDRESS"))
        if given is not None:
            _knock(given)

    def connect(self) -> None:
        """Become a driver of the cluster, unless this process is one already."""
        ray = self._ray = importlib.import_module("ray")
        if not ray.is_initialized():
            ray.init(address=self.scheduler or "auto", log_to_driver=False, logging_level="warning")
        given = self.scheduler or os.environ.get("RAY_ADDRESS")
        self._head = _endpoint(given) or _endpoint(ray.get_runtime_context().gcs_address)
        self._remote = ray.remote(max_retries=0)(run_body)
        self._mailbox = ray.remote(num_cpus=0, max_restarts=0)(Mailbox).remote()
        threading.Thread(target=self._read, args=(self._mailbox,), name="tasklib-ray", daemon=True).start()

    def send(self, body: Body) -> None:
        """Submit it; Ray repeats nothing."""
        options = {"name": body.key, "max_retries": 0, **body.resources}
        remote = self._remote.options(**options)
        body.handle = remote.remote(self._mailbox, body.key, self.introduction, body.message)
        body.handle.future().add_done_callback(lambda future: self._done(body.key, future))

    def ask_to_end(self, body: Body) -> None:
        """Interrupt it where it runs: `run_body` ends its child process."""
        self._ray.cancel(body.handle, force=False)

    def force(self, body: Body) -> None:
        """Kill the Ray worker that it runs in."""
        self._ray.cancel(body.handle, force=True)

    def slots(self) -> int:
        """CPUs that nobody uses, and those that our bodies use: one each, unless they ask for another number."""
        total = int(self._ray.cluster_resources().get("CPU", 0))
        return min(total, int(self._ray.available_resources().get("CPU", 0)) + self.running)

    def is_there(self) -> bool:
        """Whether this process is a driver still."""
        return bool(self._ray.is_initialized())

    def answers(self) -> bool:
        """Whether the head accepts connections: what Ray is asked without it never returns, and ends this process."""
        try:
            if self._head is not None:
                _knock(self._head)
        except OSError:
            return False
        return True

    def silence_seconds(self) -> float:
        """A body ends by itself when nobody has asked for its reports for so long."""
        return SILENCE_SECONDS + ASK_SECONDS

    def give_up(self) -> None:
        """Ask for no more reports: that is what bodies listen for."""
        self._mailbox = None

    def disconnect(self) -> None:
        """Leave the cluster, which ends what this driver still has there."""
        self._ray.shutdown()

    def _read(self, mailbox: Any) -> None:
        """In a thread: pass on what bodies report, until the cluster is given up or the mailbox is gone."""
        ray = self._ray
        while mailbox is self._mailbox:
            try:
                for key, number, message in ray.get(mailbox.take.remote(), timeout=REPLY_SECONDS):
                    self.report(key, number, message)
            except Exception as error:  # noqa: BLE001  Ray has many
                if mailbox is self._mailbox:
                    self.lost(str(error).splitlines()[0] if str(error) else type(error).__name__)
                return

    def _done(self, key: str, future: Any) -> None:
        """In a thread of Ray's: the body has ended, or was lost."""
        try:
            reports, sent, message = future.result()
        except Exception as error:  # noqa: BLE001  Ray has many
            why = (str(error).splitlines() or [type(error).__name__])[0]
            match type(error).__name__:
                case "TaskCancelledError":
                    self.ended(key, ["stopped"])
                case _ if not self.answers():
                    self.lost(why)
                case "NodeDiedError":
                    self.lost_body(key, f"was lost by Ray: {why}")
                case _:  # Ray may report its process lost before the kernel has ended the body in it.
                    self.lost_body(key, f"was lost by Ray: {why}", silence=0.0)
        else:
            for number, report in reports:
                self.report(key, number, report)
            self.ended(key, message, sent)


EXECUTOR = RayExecutor


class Mailbox:
    """An actor of the driver's: bodies put in what they say, and the driver takes it out."""

    def __init__(self) -> None:
        self._asyncio: Any = importlib.import_module("asyncio")
        self._messages: list[tuple[str, int, list[Any]]] = []
        self._changed = self._asyncio.Event()
        self._asked = time.monotonic()

    async def put(self, messages: list[tuple[str, int, list[Any]]]) -> float:
        """Add some; returns how many seconds ago the driver has asked for them."""
        if messages:
            self._messages += messages
            self._changed.set()
        return time.monotonic() - self._asked

    async def take(self) -> list[tuple[str, int, list[Any]]]:
        """Wait a moment until there are some, and take them."""
        self._asked = time.monotonic()
        with suppress(TimeoutError, self._asyncio.TimeoutError):
            await self._asyncio.wait_for(self._changed.wait(), ASK_SECONDS)
        self._changed.clear()
        messages, self._messages = self._messages, []
        return messages


class Sender:
    """The reports of one body on their way to the mailbox, and when its driver was last heard of."""

    def __init__(self, mailbox: Any, key: str) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._mailbox = mailbox
        self._key = key
        self.unsent: list[tuple[int, list[Any]]] = []
        self.reports = 0
        """How many there were so far."""
        self._heard = self._sent = self._asked = 0.0
        self._answer: Any = None
        """The answer of the mailbox that is awaited."""

    def is_wanted(self) -> bool:
        """Wait for the first answer of the mailbox: whether the driver still asks for reports."""
        began = time.monotonic()
        with suppress(self._ray.exceptions.RayError):
            self._heard = began - self._ray.get(self._mailbox.put.remote([]), timeout=SILENCE_SECONDS)
        return not self.is_alone()

    def report(self, message: list[Any]) -> None:
        """Send it, soon."""
        self.unsent.append((self.reports, message))
        self.reports += 1
        self._flush()

    def is_alone(self) -> bool:
        """Whether the driver has asked for nothing for so long that it counts this body as ended."""
        self._flush()
        return time.monotonic() - self._heard > SILENCE_SECONDS

    def _flush(self) -> None:
        self._listen()
        since = time.monotonic() - self._sent
        if since > FLUSH_SECONDS and (self.unsent or (since > ASK_SECONDS and self._answer is None)):
            self._sent = time.monotonic()
            answer = self._mailbox.put.remote([(self._key, *each) for each in self.unsent])
            self.unsent.clear()
            if self._answer is None:
                self._answer, self._asked = answer, self._sent

    def _listen(self) -> None:
        if self._answer is None or not self._ray.wait([self._answer], timeout=0)[0]:
            return
        answer, self._answer = self._answer, None
        with suppress(self._ray.exceptions.RayError):  # An answer that does not come says nothing about the driver.
            self._heard = max(self._heard, self._asked - self._ray.get(answer))


def run_body(mailbox: Any, key: str, introduction: Mapping[str, Any], job: Sequence[Any]) -> list[Any]:
    """In a Ray worker: run one body in its child process, to its end, until Ray interrupts it, or until nobody waits
    for it.

    Returns the reports that are not sent yet, how many there were, and how it ended.
    """
    sender = Sender(mailbox, key)
    if not sender.is_wanted():
        return [[], 0, ["stopped"]]
    # Ray cancels with a KeyboardInterrupt, anywhere in here; so the body's last words are still heard.
    before = signal.signal(signal.SIGINT, lambda *_: node.stop(key))
    try:
        ended = node.run(key, introduction, job, report=sender.report, is_unwanted=sender.is_alone)
    finally:
        signal.signal(signal.SIGINT, before)
    return [sender.unsent, sender.reports, ended]


def _knock(endpoint: tuple[str, int]) -> None:
    """Raise OSError if nothing accepts connections there."""
    socket.create_connection(endpoint, PROBE_SECONDS).close()


def _endpoint(address: str | None) -> tuple[str, int] | None:
    """Host and port of an address; None for others, such as "auto"."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else None
