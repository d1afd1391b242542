"""Task bodies on a Dask cluster: `@task(executor="dask", resources={"GPU": 1})`, `tasklib worker --executor dask`.

Dask cannot end a thread, so each body runs in a child process of the Dask worker that gets it, and a stop ends that
process.  Dask contributes a slot, the requested resources, and another machine.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from tasklib.worker.execution.cluster import PREFIX, ClusterExecutor
from tasklib.worker.execution.cluster_body import Body
from tasklib.worker.execution.processes import node

__all__ = ["EXECUTOR", "DaskExecutor"]

CONNECT_SECONDS: Final = 10
WANTED: Final = ("executing", "long-running")
"""The states in which a Dask worker's task still has a client that waits for it."""
OPEN: Final = ("running", "paused", "closing_gracefully")
"""The states of a Dask worker that has a scheduler."""


class DaskExecutor(ClusterExecutor):
    """Sends bodies to the scheduler given by `--scheduler`, or by Dask's own settings."""

    engine = "dask"

    def connect(self) -> None:
        """Connect to the scheduler, and keep it from repeating our bodies."""
        dask = importlib.import_module("distributed")
        self._client = dask.Client(
            self.scheduler, name="tasklib", set_as_default=False, timeout=CONNECT_SECONDS, direct_to_workers=False
        )
        self._topic = f"tasklib-{uuid4().hex}"
        self._client.subscribe_topic(self._topic, lambda event: self.report(*event[1]))
        self._client.register_plugin(_once_only())
        self._connection = self._client.scheduler_comm

    def send(self, body: Body) -> None:
        """Submit it under a key of its own."""
        body.handle = self._client.submit(
            run_body,
            body.key,
            self._topic,
            self.introduction,
            body.message,
            key=body.key,
            pure=False,
            retries=0,
            resources=dict(body.resources) or None,
        )
        body.handle.add_done_callback(lambda future: self._done(body.key, future))

    def ask_to_end(self, body: Body) -> None:
        """Notify the Dask workers: the one that runs it ends its process.  One waiting in the scheduler is dropped."""
        waits = not any(body.key in keys for keys in self._client.processing().values())
        self._client.run(node.stop, body.key, on_error="ignore")
        if waits:
            self._client.cancel([body.handle], force=True)

    def force(self, body: Body) -> None:
        """Cancel it: the Dask worker notices that nobody waits for it any more, and ends its process."""
        self._client.cancel([body.handle], force=True)

    def slots(self) -> int:
        """Threads of Dask workers, not counting those that run other programs' tasks."""
        threads: Mapping[str, int] = self._client.nthreads()
        others = {
            worker: sum(not str(key).startswith(PREFIX) for key in keys)
            for worker, keys in self._client.processing().items()
        }
        return sum(max(0, count - others.get(worker, 0)) for worker, count in threads.items())

    def is_there(self) -> bool:
        """Whether the client was connected all the time: when it reconnects, it has forgotten its futures, and a new
        scheduler has not got our plugin."""
        return self._client.status == "running" and self._client.scheduler_comm is self._connection

    def silence_seconds(self) -> float:
        """A Dask worker notices after this time, at the latest, that its connection to the scheduler is gone."""
        dask: Any = importlib.import_module("dask")
        return float(dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"), default="s"))

    def disconnect(self) -> None:
        """Close the client, which forgets whatever it still waits for."""
        self._client.close()

    def _done(self, key: str, future: Any) -> None:
        """Runs in a thread of Dask's: the body has ended, or was lost."""
        try:
            sent, message = future.result()
        except Exception as error:  # noqa: BLE001  Dask raises many kinds
            if type(error).__name__ == "KilledWorker":
                # It may have been closed, and end its bodies just now.
                self.lost_body(key, "was killed with the Dask worker that it ran in", silence=0)
            elif not self.is_there():
                self.lost("the connection to the scheduler broke")
            elif future.status in ("cancelled", "lost"):
                self.lost_body(key, "was given up by Dask")
            else:
                self.ended(key, ["died", f"was lost by Dask: {error}", 0, -9])
        else:
            self.ended(key, message, sent)


EXECUTOR = DaskExecutor


def run_body(key: str, topic: str, introduction: Mapping[str, Any], job: Sequence[Any]) -> list[Any]:
    """Run one body in its child process, from a thread of a Dask worker, until it ends or nobody waits for it.

    Returns how many reports it has sent, and how it ended.
    """
    worker: Any = importlib.import_module("distributed").get_worker()
    numbers = itertools.count()

    def is_unwanted() -> bool:
        task = worker.state.tasks.get(key)
        # A Dask worker that has lost its scheduler closes, but first waits for its threads.
        return task is None or task.state not in WANTED or worker.status.name not in OPEN

    def report(message: list[Any]) -> None:
        worker.log_event(topic, [key, next(numbers), message])

    ended = node.run(key, introduction, job, report=report, is_unwanted=is_unwanted)
    return [next(numbers), ended]


def _once_only() -> Any:
    """A plugin of the scheduler: a body of ours whose Dask worker dies is not sent to another one.

    Dask does that whatever `retries` says, up to `allowed-failures` times.
    """
    dask = importlib.import_module("distributed")

    class OnceOnly(dask.SchedulerPlugin):  # type: ignore[misc, name-defined]
        name = "tasklib-once-only"
        idempotent = True

        async def start(self, scheduler: Any) -> None:
            self._scheduler = scheduler

        def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
            if finish == "processing" and isinstance(key, str) and key.startswith(PREFIX):
                self._scheduler.tasks[key].suspicious = self._scheduler.allowed_failures

    return OnceOnly()
