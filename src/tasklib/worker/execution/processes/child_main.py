"""The main program of a child process: it runs the tasks it is sent, one at a time, and reports how each ended.

Started by `child.py` as `python -m tasklib.worker.execution.processes.child_main`.  It ends when the worker closes the
connection, when the worker asks it to, and, whatever its code is doing, when the worker is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.middleware import Middleware
from tasklib.core.calls.resources import WorkerState
from tasklib.core.config import Config
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion
from tasklib.core.redaction import Redactor
from tasklib.core.texts.error_text import ERROR_CHARACTERS, bounded, describe
from tasklib.core.time.timing import SystemTiming, Timing
from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, TaskDefinitionError
from tasklib.storage import connect
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import Caller, Committed
from tasklib.worker.execution.processes.import_path import Address, Loader
from tasklib.worker.execution.processes.limits import MemoryLimit
from tasklib.worker.execution.processes.log_forwarding import forward_logs
from tasklib.worker.execution.processes.pipe_journal import PipeJournal
from tasklib.worker.execution.running_attempt import AttemptSettings, Ended, RunningAttempt
from tasklib.worker.hooks import call_hooks
from tasklib.worker.messages import Channel, Inbox
from tasklib.worker.workflows.drivers import WorkflowSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.storage.database import Database

REPORT_SECONDS = 0.1
"""The shortest time between two progress reports."""
CHECK_SECONDS = 1.0
ENDED = 128 + signal.SIGTERM
"""The exit code of a process that ended as it was asked to."""
PR_SET_PDEATHSIG = 1
ASKED_SECONDS = 0.5
"""How long a SIGTERM waits for the worker to confirm it."""


def main() -> None:
    """Run the tasks that the worker sends over the sockets inherited from it."""
    work, control, worker = map(int, sys.argv[1:4])
    _die_with(worker)
    connection, lifeline = socket.socket(fileno=work), socket.socket(fileno=control)
    for each in (connection, lifeline):
        each.set_inheritable(False)
        # The worker would take a fork of this process for this one.
        os.register_at_fork(after_in_child=each.close)
    # As in the worker, what the encoding lacks is printed as an escape instead of failing the task.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    channel = Channel(connection)
    inbox = Inbox(channel)
    introduction = inbox.take()
    if introduction is None:
        return
    host = Host(channel, inbox, introduction)
    threading.Thread(target=host.watch, args=(lifeline, worker), name="tasklib-lifeline", daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, host.on_sigterm)
    host.serve()


class Host:
    """Runs tasks in this process."""

    def __init__(self, channel: Channel, inbox: Inbox, introduction: Mapping[str, Any]) -> None:
        _restore_environment(introduction)
        forward_logs(channel, introduction["log_levels"])
        self._channel = channel
        self._inbox = inbox
        self._pid = os.getpid()
        self._timing = SystemTiming()
        self.journal = PipeJournal(channel, inbox)
        self._config = Config(**introduction["config"])
        self._is_default: bool = introduction["is_default"]
        self._worker_id: str = introduction["worker_id"]
        self._memory = MemoryLimit(introduction["memory_limit_mb"])
        self._loader = Loader(introduction["main"], introduction["modules"], introduction["queue"])
        self._definitions: dict[str, Definition] = {}
        self._queue: TaskQueue | None = None
        self._database: Database | None = None
        self._caller = Caller(
            self,
            max_result_bytes=self._config.max_result_bytes,
            run_async=lambda awaited: self._loop().run(awaited, context=contextvars.copy_context()),
        )
        self._state = WorkerState.hiding(Redactor(self._config.redact_keys))
        self.settings = self._settings()
        self._runner: asyncio.Runner | None = None
        self._running: ChildAttempt | None = None
        self._coroutine: asyncio.Task[Any] | None = None
        self.asked = threading.Event()
        """Set once the worker has asked this process to end."""
        self._report: tuple[str, float, str | None] | None = None
        self._reported = 0.0
        self._passing_on = threading.Lock()
        """Held while a report is sent, so that the watching thread sends none after the task's outcome."""

    def serve(self) -> None:
        """Run tasks until the worker closes the connection; then run the shutdown hooks and return."""
        while (message := self._inbox.take()) is not None:
            fields, claim, address = message
            answer = self._attempt(ClaimedTask(fields, claim), address)
            if os.getpid() != self._pid:
                os._exit(0)  # the function has forked, and returned in the copy too
            self._pass_on()  # Before the outcome: the last report is recorded together with it.
            if answer is not None:
                self._channel.send(answer)
            if self.asked.is_set():
                _leave()
        self._close()

    def watch(self, lifeline: socket.socket, worker: int) -> None:
        """In a thread, while user code runs: notice that the work must end, or that the worker is gone."""
        while True:
            lifeline.settimeout(REPORT_SECONDS if self._reported else CHECK_SECONDS)
            try:
                word = lifeline.recv(1)
            except TimeoutError:
                self._pass_on()
                if os.getppid() != worker:
                    _die()
                continue
            except OSError:
                word = b""
            if not word:
                _die()
            if word == b"r":
                dropped = self._inbox.drop_recalled()
                self._channel.send(["returned", [ClaimedTask(fields, claim).id for fields, claim, _ in dropped]])
                continue
            if self._running is not None:
                self._running.ask_to_end()
            self.asked.set()

    def on_sigterm(self, *_: object) -> None:
        """End the work if it was the worker that sent SIGTERM.

        A service manager may signal every process of the service; then the worker decides how long its tasks go on.
        """
        if not self.asked.wait(ASKED_SECONDS):
            return
        if self._coroutine is None:
            raise SystemExit(ENDED)
        self._coroutine.get_loop().call_soon_threadsafe(self._coroutine.cancel)

    def _attempt(self, task: ClaimedTask, address: Sequence[Any] | None) -> list[Any] | None:
        """How the attempt ended, as a message; None if the worker has ended it.

        `address` is where to import its function from, sent only until this process has loaded it.
        """
        definition = self._definitions.get(task.name)
        if definition is None:
            try:
                definition = self._load(task.name, Address(*address or ()))
            except BaseException as error:  # noqa: BLE001  importing the program runs its code
                self._memory.explain(error)
                never = isinstance(error, TaskDefinitionError | ConfigurationError)
                return None if self.asked.is_set() else ["unloadable", describe(error), never]
            self._channel.send(["begun"])
        attempt = self._running = ChildAttempt(self, task, definition)
        try:
            result = self._call(self._caller.prepare(definition, task, attempt), definition.is_async)
            return _message(attempt.returned(result))
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            return _message(attempt.raised(error))
        finally:
            self._running = None

    def _call(self, call: Callable[[], Any], is_async: bool) -> Any:
        """Make the call with its own context variables: here, or on the event loop that all coroutines of this child
        share."""
        variables = contextvars.copy_context()
        if not is_async:
            return variables.run(call)
        return self._loop().run(self._coroutine_of(call), context=variables)

    async def _coroutine_of(self, call: Callable[[], Any]) -> Any:
        self._coroutine = asyncio.current_task()
        try:
            return await call()
        finally:
            self._coroutine = None

    def _load(self, name: str, address: Address) -> Definition:
        if self._is_default:
            from tasklib.queue.default import default_queue_or

            default_queue_or(self._config)  # As in the worker's program, which may set it up again when it is imported.
        definition, queue = self._loader.load(name, address)
        if queue is not None and self._queue is None:
            if queue.startup_hooks:
                self._loop().run(call_hooks(queue.startup_hooks, self._state))
            self._queue = queue
            self.settings = self._settings()
        self._definitions[name] = definition
        return definition

    def _settings(self) -> AttemptSettings:
        config, queue = self._config, self._queue
        return AttemptSettings(
            worker_id=self._worker_id,
            state=self._state,
            middleware=self.middleware,
            error_hooks=() if queue is None else queue.error_hooks,
            retry_policy=config.backoff,
            max_result_bytes=config.max_result_bytes,
            timing=self._timing,
            workflows=WorkflowSettings(self._timing, self.middleware),
        )

    def explain(self, error: BaseException) -> None:
        """Say in an error that the limit of memory is its cause, if it is; this process then takes no more tasks."""
        if self._memory.explain(error):
            self._channel.send(["leaving"])

    def send(self, message: list[Any]) -> None:
        """Send a message to the worker."""
        self._channel.send(message)

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    @property
    def middleware(self) -> Sequence[Middleware]:
        """The middleware of the program's queue."""
        return () if self._queue is None else self._queue.middleware

    @property
    def timing(self) -> Timing:
        """The machine's clock: virtual time does not reach child processes."""
        return self._timing

    @property
    def database(self) -> Database:
        """The queue's own database, so that what a task submits joins its transaction."""
        queue = self._queue
        if queue is not None and _same_database(queue.config, self._config):
            return queue.database
        if self._database is None:
            self._database = connect(self._config, None if queue is None else queue.clock)
        return self._database

    def note(self, task_id: str, fraction: float, message: str | None) -> None:
        """Report progress: at once, or after `REPORT_SECONDS` since the last report."""
        self._report = (task_id, fraction, message)
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._pass_on()

    def _pass_on(self) -> None:
        with self._passing_on:
            report, self._report = self._report, None
            if report is not None:
                self._reported = time.monotonic()
                self._channel.send(["progress", *report])

    def _close(self) -> None:
        queue = self._queue
        if queue is not None and queue.shutdown_hooks:
            self._loop().run(call_hooks(reversed(queue.shutdown_hooks), self._state))
        if self._runner is not None:
            self._runner.close()
        for each in (queue, self._database):
            if each is not None:
                each.close()


class ChildAttempt(RunningAttempt["Host"]):
    """An attempt that runs here, and reports to the worker."""

    __slots__ = ("_is_asked",)

    def __init__(self, host: Host, task: ClaimedTask, definition: Definition) -> None:
        self.task = task
        self.definition = definition
        self.started = time.monotonic()
        self.stop_reason = None
        self.workflow = None
        self._runner = host
        self._context = None
        self._is_asked = False

    def ask_to_end(self) -> None:
        """Ask the function to end; called in another thread, while this one may be anywhere, so without a lock."""
        self._is_asked = True
        if self._context is not None:
            self._context.ask_to_end()

    def raised(self, error: BaseException) -> Ended:
        """The same; what the function raises after the worker has ended it says nothing."""
        return self.stopped() if self._runner.asked.is_set() else super().raised(error)

    def _make_context(self) -> TaskContext:
        context = super()._make_context()
        if self._is_asked:  # looked at after the context is visible, so that the request is not missed
            context.ask_to_end()
        return context

    def _failed(self, error: BaseException) -> Ending:
        self._runner.explain(error)
        return super()._failed(error)

    def _report_progress(self, fraction: float, message: str | None) -> None:
        self._runner.note(self.task.id, fraction, message)

    def _record_line(self, level: str, text: str) -> None:
        self._runner.send(["line", self.task.id, level, text])


def _die_with(worker: int) -> None:
    """Let the kernel end this process with its parent, where it can; end at once if the parent is already gone."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker:
        os._exit(1)


def _die() -> NoReturn:
    """The worker has ended: end at once, with everything the tasks here have started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _leave() -> NoReturn:
    """End as asked, without waiting for threads or exit handlers of the program."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(ENDED)


def _restore_environment(introduction: Mapping[str, Any]) -> None:
    """Restore arguments, folder and variables of the worker's process as they were at its start, for the imported
    program."""
    if introduction["folder"] is not None:
        with suppress(OSError):  # removed meanwhile
            os.chdir(introduction["folder"])
    sys.path[:] = introduction["sys_path"]
    sys.argv[:] = introduction["sys_argv"]
    if introduction["python_path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = introduction["python_path"]


def _same_database(one: Config, other: Config) -> bool:
    return (one.database_url, one.db_schema) == (other.database_url, other.db_schema)


def _message(ended: Ended) -> list[Any] | None:
    """The message to the worker about an attempt; None if the worker has ended the attempt itself."""
    if isinstance(ended, Completion):
        return ["done", ended.result, ended.started, ended.ended]
    if isinstance(ended, Committed):
        return ["committed"]
    if ended.event is Event.RELEASE:
        return None
    error = None if ended.error is None else bounded(ended.error, ERROR_CHARACTERS)
    begun = (ended.started, ended.ended, None)
    workflow = (ended.waits_for, ended.waits_on, ended.reopen, ended.arguments, ended.unasked)
    return ["ended", ended.event.value, ended.delay, error, ended.outcome, *begun, *workflow]


if __name__ == "__main__":
    main()
