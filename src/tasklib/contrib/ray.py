"""Task bodies on a Ray cluster: `@task(executor="ray", resources={"num_gpus": 1})`, `tasklib worker --executor ray`.

Each body is a Ray task without retries, and runs in a child process of the Ray worker that it was given.  `resources`
are the options of a Ray task: `num_cpus`, `num_gpus`, `memory`, `resources`, `runtime_env` and the rest.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tasklib.worker.execution.cluster import Body, ClusterExecutor
from tasklib.worker.execution.processes import node

__all__ = ["EXECUTOR", "RayExecutor"]

FLUSH_SECONDS: Final = 0.2
"""How often a body's reports are sent; the last ones come with its end."""


class RayExecutor(ClusterExecutor):
    """Sends bodies to the cluster at `--scheduler`, or where RAY_ADDRESS says, or to the one on this machine."""

    engine = "ray"

    def connect(self) -> None:
        """Become a driver of the cluster, unless this process is one already."""
        ray = self._ray = importlib.import_module("ray")
        if not ray.is_initialized():
            ray.init(address=self.scheduler or "auto", log_to_driver=False, logging_level="warning")
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

    def disconnect(self) -> None:
        """Leave the cluster, which ends what this driver still has there."""
        self._ray.shutdown()

    def _read(self, mailbox: Any) -> None:
        """In a thread: pass on what bodies report, until the mailbox is gone."""
        ray = self._ray
        while True:
            try:
                for key, message in ray.get(mailbox.take.remote()):
                    self.report(key, message)
            except Exception as error:  # noqa: BLE001  Ray has many
                self.lost(str(error).splitlines()[0] if str(error) else type(error).__name__)
                return

    def _done(self, key: str, future: Any) -> None:
        """In a thread of Ray's: the body has ended."""
        try:
            reports, message = future.result()
        except Exception as error:  # noqa: BLE001  Ray has many
            cancelled = type(error).__name__ == "TaskCancelledError"
            why = (str(error).splitlines() or [type(error).__name__])[0]
            reports, message = [], ["stopped"] if cancelled else ["died", f"was lost by Ray: {why}", 0, -9]
        for each in reports:
            self.report(key, each)
        self.ended(key, message)


EXECUTOR = RayExecutor


class Mailbox:
    """An actor of the driver's: bodies put in what they say, and the driver takes it out."""

    def __init__(self) -> None:
        asyncio: Any = importlib.import_module("asyncio")
        self._messages: list[tuple[str, list[Any]]] = []
        self._changed = asyncio.Event()

    async def put(self, messages: list[tuple[str, list[Any]]]) -> None:
        """Add some."""
        self._messages += messages
        self._changed.set()

    async def take(self) -> list[tuple[str, list[Any]]]:
        """Wait until there are some, and take them."""
        await self._changed.wait()
        self._changed.clear()
        messages, self._messages = self._messages, []
        return messages


def run_body(mailbox: Any, key: str, introduction: Mapping[str, Any], job: Sequence[Any]) -> list[Any]:
    """In a Ray worker: run one body in its child process, to its end or until Ray interrupts it."""
    unsent: list[list[Any]] = []
    flushed = 0.0

    def report(message: list[Any]) -> None:
        unsent.append(message)
        flush()

    def flush() -> bool:
        nonlocal flushed
        if unsent and time.monotonic() > flushed + FLUSH_SECONDS:
            flushed = time.monotonic()
            mailbox.put.remote([(key, message) for message in unsent])
            unsent.clear()
        return False

    ended = node.run(key, introduction, job, report=report, is_unwanted=flush)
    return [unsent, ended]
