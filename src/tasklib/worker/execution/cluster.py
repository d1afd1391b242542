"""Attempts on a cluster engine, such as Dask or Ray: only the function's body runs there.

The worker does everything else: claim, lease, heartbeat, timeout, cancel, the fenced finish and retries.  The engine
never repeats a body by itself.  An engine is one file with a subclass of `ClusterExecutor`, which connects, sends a
body, ends one, and reports what comes back, from any thread.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.texts.error_text import summary
from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, ProcessNotReady, Snooze, TaskDefinitionError
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import UNWIND_SECONDS, Attempt, AttemptRunner, Executor
from tasklib.worker.execution.cluster_body import Body
from tasklib.worker.execution.processes.import_path import address_of, is_importable
from tasklib.worker.execution.processes.introduction import Introduction
from tasklib.worker.execution.running_attempt import Ended, StopReason
from tasklib.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

ENGINES: Final = ("dask", "ray")
PREFIX: Final = "tasklib-"
"""The prefix of the keys of all bodies, of every worker."""
POSTPONE_SECONDS: Final = 5.0
"""About how long a task is postponed whose engine cannot be reached; no attempt is spent."""
FORCE_SECONDS: Final = 3.0
"""How long a body may take to end after it was asked to, before the engine ends the process around it."""
LOOK_SECONDS: Final = 1.0
"""How often to check that the engine answers, and to ask it for its capacity."""
GONE_SECONDS: Final = 10.0
"""For how long an engine that does not answer may come back before everything there is given up."""
END_SECONDS: Final = 5.0
"""How long a node takes, generously, to end a body once it has noticed that the body is lost."""
REPORTS_SECONDS: Final = 5.0
"""How long the end of a body waits for reports that it sent before, and that come another way."""

log = logging.getLogger("tasklib.worker")


class ClusterExecutor(Executor):
    """Sends bodies to an engine; a body that must stop is ended there, and its attempt ends when that is done."""

    engine: str
    """The name that tasks and `--executor` use."""
    name = "body on the cluster"
    stops_surely = True
    shares_process = False

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        self.scheduler = settings.scheduler if settings.executor == self.engine else None
        """The engine's address; None: as in the engine's own settings."""
        self._queue = queue
        self._settings = settings
        self._introduction = Introduction(queue, settings, worker_id)
        self._takes_all = settings.executor == self.engine
        self._bodies: dict[str, Body] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._is_connected = False
        self._was_connected = False
        self._silent_since: float | None = None
        """Since when the engine has not answered; None if it answers."""
        self._runner: AttemptRunner | None = None
        self.introduction: dict[str, Any] = {}
        """The first message to each child process on a node."""

    def reach(self) -> None:
        """Raise if nothing answers at the engine's address, before another connection is given up for it; in a
        thread."""

    def connect(self) -> None:
        """Connect to the engine, or raise; in a thread."""
        raise NotImplementedError

    def send(self, body: Body) -> None:
        """Send the body to the engine and set its handle, without waiting."""
        raise NotImplementedError

    def ask_to_end(self, body: Body) -> None:
        """Have its process ended where it runs; in a thread."""
        raise NotImplementedError

    def force(self, body: Body) -> None:
        """Kill the process that runs it, even if others run there too; in a thread."""
        raise NotImplementedError

    def slots(self) -> int:
        """How many of our bodies the cluster can run at once, including those that already run; in a thread."""
        raise NotImplementedError

    def is_there(self) -> bool:
        """Whether the connection still holds; without waiting."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether the engine can be reached now, while the connection holds; in a thread."""
        return True

    def silence_seconds(self) -> float:
        """How long a node goes on with a body after this worker could last be heard there."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Let the nodes hear nothing of this worker any more, so that bodies end there; without waiting."""

    def disconnect(self) -> None:
        """Close the connection, even if the engine is gone; in a thread."""
        raise NotImplementedError

    def check(self, definition: Definition) -> None:
        """Refuse a task that could never run there, with the reason and a remedy."""
        if definition.options.executor == self.engine:
            address_of(definition)

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Accepts tasks that ask for this engine and, with `--executor`, all others that can be loaded there."""
        options = definition.options
        if options.executor is not None or not self._takes_all:
            return options.executor == self.engine
        return options.isolation == "auto" and not options.transactional and is_importable(definition)

    def start(self, runner: AttemptRunner) -> None:
        """Send attempts one by one; while there is no connection they wait for it."""
        loop, self._runner = asyncio.get_running_loop(), runner
        self._loop = loop
        while (attempt := runner.take(self)) is not None:
            runner.hold_slot(attempt)
            attempt.work = loop.create_future()
            task = attempt.task
            try:
                address = address_of(attempt.definition)
            except TaskDefinitionError as error:
                loop.call_soon(attempt.end, attempt.raised(ProcessNotReady(f"cannot be had: {error}", never=True)))
                continue
            key = f"{PREFIX}{task.id}-{task.version}"
            body = Body(key, attempt, runner, address, attempt.definition.options.resources)
            self._bodies[key] = body
            if self._is_connected and not self.is_there():
                self._lost("the connection broke")
            if self._is_connected and self._silent_since is None:
                self._send(body)
            elif self._is_connected:
                loop.call_soon(self._postpone, body)
            elif self._connecting is None:
                self._connecting = own_task(self._connect())

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Have the body ended; by force if that takes long."""
        body = next((each for each in self._bodies.values() if each.attempt is attempt), None)
        if body is None:
            return
        already, body.is_ending = body.is_ending, True
        if body.handle is None:
            self._over(body, ["stopped"])
        elif body.is_lost:
            if reason is StopReason.RELEASED:
                # This worker stops, and cannot wait until the task may run elsewhere.
                self._end(body, body.postponed())
        elif not already:
            self._in_thread(self.ask_to_end, body)
            timing = body.runner.settings.timing
            timing.call_later(FORCE_SECONDS, self._force, body)
            timing.call_later(UNWIND_SECONDS, self._abandon, body)

    async def close(self) -> None:
        """End what still runs, and close the connection."""
        for each in (self._connecting, self._looking, self._measuring):
            if each is not None:
                each.cancel()
        for body in list(self._bodies.values()):
            if body.handle is not None and not body.is_lost:
                await asyncio.to_thread(self.force, body)
        if self._is_connected:
            self._is_connected = False
            await asyncio.to_thread(self.disconnect)

    @property
    def running(self) -> int:
        """How many bodies have begun and not ended, without those that are lost."""
        return sum(body.has_begun and not body.is_lost for body in list(self._bodies.values()))

    def report(self, key: str, number: int, message: list[Any]) -> None:
        """Pass on a report of a running body, once all with lower numbers are there; from any thread."""
        self._call(self._reported, key, number, message)

    def ended(self, key: str, message: list[Any], sent: int = 0) -> None:
        """Pass on how a body ended, once all reports are there that it has sent; from any thread."""
        self._call(self._ended, key, message, sent)

    def lost(self, why: str) -> None:
        """Note that the connection to the engine is lost, and every body with it; from any thread."""
        self._call(self._lost, why)

    def lost_body(self, key: str, why: str, *, silence: float | None = None) -> None:
        """Note that one body was lost, and may go on for `silence_seconds()`, or for `silence`; from any thread."""
        self._call(self._lost_body, key, why, self.silence_seconds() if silence is None else silence)

    def _call(self, function: Any, *arguments: Any) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(function, *arguments)

    async def _connect(self) -> None:
        """Connect and send what waits, or postpone it."""
        self.introduction = self._introduction.message()
        try:
            await asyncio.to_thread(self._connect_anew)
        except Exception as error:  # noqa: BLE001  engines raise whatever they like
            log.warning("cannot reach %s, its tasks are postponed: %s", self.engine, summary(str(error)) or error)
            for body in self._unsent():
                self._postpone(body)
        else:
            self._is_connected = True
            self._silent_since = None
            if self._looking is None:
                self._looking = own_task(self._look())
            for body in self._unsent():
                self._send(body)
        finally:
            self._connecting = None

    def _connect_anew(self) -> None:
        """Connect again, in a thread: a restarted engine has lost everything that was set up before."""
        self.reach()
        if self._was_connected:
            with suppress(Exception):
                self.disconnect()
        self.connect()
        self._was_connected = True

    def _postpone(self, body: Body) -> None:
        if body.key in self._bodies:
            postponed = Snooze(delay=POSTPONE_SECONDS * random.uniform(0.5, 1.5))
            self._end(body, body.attempt.raised(postponed))

    def _unsent(self) -> list[Body]:
        return [body for body in self._bodies.values() if body.handle is None]

    def _send(self, body: Body) -> None:
        try:
            self.send(body)
        except Exception as error:  # noqa: BLE001  of the engine's
            self._end(body, body.attempt.raised(ProcessNotReady(f"was refused by {self.engine}: {error}")))

    async def _look(self) -> None:
        """Notice that the engine is gone, and ask how much it has room for."""
        timing = self._queue.timing
        while True:
            if self._is_connected and not self.is_there():
                self._lost("the connection broke")
            elif self._is_connected:
                if await asyncio.to_thread(self.answers):
                    self._silent_since = None
                    # Not awaited: an engine that is lost meanwhile may never answer.
                    if self._takes_all and (self._measuring is None or self._measuring.done()):
                        self._measuring = own_task(self._measure())
                elif self._silent_since is None:
                    self._silent_since = timing.monotonic()
                elif timing.monotonic() - self._silent_since >= GONE_SECONDS:
                    self._lost("it does not answer")
            await timing.sleep(LOOK_SECONDS)

    async def _measure(self) -> None:
        """Hold about as many tasks as the engine has room for."""
        try:
            slots = await asyncio.to_thread(self.slots)
        except Exception as error:  # noqa: BLE001  of the engine's
            log.debug("%s does not say how much it has room for: %s", self.engine, error)
        else:
            if self._is_connected:
                self._resize(slots)

    def _resize(self, slots: int) -> None:
        """Hold so many tasks beside those whose bodies are lost."""
        if self._takes_all and self._runner is not None:
            lost = sum(body.is_lost for body in self._bodies.values())
            self._runner.resize(lost + max(1, min(self._settings.concurrency, slots)))

    def _reported(self, key: str, number: int, message: list[Any]) -> None:
        body = self._bodies.get(key)
        if body is None or body.attempt.is_ended:
            return
        if number < body.passed_on:
            if message[0] == "at":
                self._refuse_second_run(body)
            return
        body.receive(number, message)
        self._end_when_complete(body)

    def _refuse_second_run(self, body: Body) -> None:
        """End a body that the engine lost and started again: only the retry policy decides whether a task runs
        again."""
        log.error("%s ran task %s again by itself; it is ended there", self.engine, body.attempt.task.id)
        self._in_thread(self.ask_to_end, body)

    def _ended(self, key: str, message: list[Any], sent: int) -> None:
        body = self._bodies.get(key)
        if body is None or (body.is_lost and message[0] in ("died", "stopped")):
            return  # What an engine that was given up says of a lost body says nothing about its process.
        body.end, body.sent = message, sent
        self._end_when_complete(body)
        if body.key in self._bodies:
            body.runner.settings.timing.call_later(REPORTS_SECONDS, self._end_incomplete, body)

    def _end_when_complete(self, body: Body) -> None:
        if body.end is not None and body.passed_on >= body.sent:
            self._over(body, body.end)

    def _end_incomplete(self, body: Body) -> None:
        """Wait no longer for reports that were lost on their way."""
        if body.end is not None and body.key in self._bodies:
            self._over(body, body.end)

    def _lost(self, why: str) -> None:
        if not self._is_connected:
            return
        self._is_connected = False
        self.give_up()
        log.warning("lost %s: %s", self.engine, why)
        silence = self.silence_seconds()
        for body in [each for each in self._bodies.values() if each.handle is not None]:
            self._lose(body, f"was lost with {self.engine}: {why}", silence)
        self._resize(1)
        self._queue.timing.call_later(silence + END_SECONDS, self._leave)

    def _leave(self) -> None:
        """Close a connection that was lost, unless there is a new one: Ray would end this process in the end."""
        if not self._is_connected and self._connecting is None:
            self._connecting = own_task(self._disconnect())

    async def _disconnect(self) -> None:
        try:
            with suppress(Exception):
                await asyncio.to_thread(self.disconnect)
            self._was_connected = False
        finally:
            self._connecting = None
        if self._unsent():
            self._connecting = own_task(self._connect())

    def _lost_body(self, key: str, why: str, silence: float) -> None:
        body = self._bodies.get(key)
        if body is None:
            return
        if body.is_ending and not body.has_begun:
            self._over(body, ["stopped"])
        else:
            self._lose(body, why, silence)

    def _lose(self, body: Body, why: str, silence: float) -> None:
        """Wait until the body's node must have ended it; only then may the task run again."""
        if body.end is not None:
            self._over(body, body.end)
        elif not body.is_lost:
            timing = body.runner.settings.timing
            body.is_lost = True
            body.gone_at = timing.monotonic() + silence + END_SECONDS
            timing.call_later(silence + END_SECONDS, self._outlived, body, ["died", why, body.pid, -9])

    def _outlived(self, body: Body, ended: list[Any]) -> None:
        if body.key in self._bodies:
            self._over(body, ended)

    def _over(self, body: Body, message: list[Any]) -> None:
        self._end(body, body.outcome(message, self.engine))

    def _end(self, body: Body, ended: Ended) -> None:
        """End the attempt; its body has ended or was never sent."""
        self._bodies.pop(body.key, None)
        body.attempt.end(ended)
        if body.attempt.work is not None and not body.attempt.work.done():
            body.attempt.work.set_result(None)

    def _force(self, body: Body) -> None:
        if body.key in self._bodies:
            self._in_thread(self.force, body)

    def _abandon(self, body: Body) -> None:
        """Wait no longer for a body that does not end, unless the engine may be lost: then nobody knows yet."""
        if self._silent_since is not None and self._is_connected:
            body.runner.settings.timing.call_later(LOOK_SECONDS, self._abandon, body)
        elif not body.is_lost:
            body.attempt.abandon()

    def _in_thread(self, act: Any, body: Body) -> None:
        """Make a call that may block on the engine; if it fails, the attempt is abandoned later, with a log line."""

        def do() -> None:
            try:
                act(body)
            except Exception as error:  # noqa: BLE001  of the engine's
                log.warning("%s could not end task %s: %s", self.engine, body.attempt.task.id, error)

        asyncio.get_running_loop().run_in_executor(None, do)


def cluster_executors(queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> tuple[ClusterExecutor, ...]:
    """The engines that the worker's tasks, or its own settings, ask for."""
    wanted = {settings.executor} | {definition.options.executor for _, definition in queue.registry.items()}
    return tuple(_executor(engine)(queue, settings, worker_id) for engine in ENGINES if engine in wanted)


def _executor(engine: str) -> type[ClusterExecutor]:
    """The engine's executor, loaded when it is needed; an engine that is not installed is an error with the remedy."""
    try:
        importlib.import_module({"dask": "distributed"}.get(engine, engine))
    except ImportError as error:
        raise ConfigurationError(
            f"tasks run on {engine}, which is not installed: pip install 'tasklib-queue[{engine}]' ({error})"
        ) from error
    found: type[ClusterExecutor] = importlib.import_module(f"tasklib.contrib.{engine}").EXECUTOR
    return found
