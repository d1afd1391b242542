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
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tasklib.core.calls.base_exceptions import uncarried
from tasklib.core.calls.context import TaskContext, context_class
from tasklib.core.calls.middleware import Middleware, call_error_hooks
from tasklib.core.calls.resources import WorkerState
from tasklib.core.codec import encode_result
from tasklib.core.config import Config
from tasklib.core.lifecycle import Ending
from tasklib.core.redaction import Redactor
from tasklib.core.texts.error_text import ERROR_CHARACTERS, bounded, describe
from tasklib.core.time.timing import SystemTiming, Timing
from tasklib.definition import Definition, secrets_of
from tasklib.errors import ConfigurationError, TaskDefinitionError
from tasklib.storage import connect
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import COMMITTED, Caller
from tasklib.worker.execution.processes.import_path import Address, Loader
from tasklib.worker.execution.processes.limits import MemoryLimit
from tasklib.worker.execution.processes.log_forwarding import forward_logs
from tasklib.worker.hooks import call_hooks
from tasklib.worker.messages import Channel, Inbox
from tasklib.worker.workflows.drivers import AwaitingWorkflow, BlockingWorkflow, Conditions, workflow_for
from tasklib.worker.workflows.ending import decided, deciding, failed, refuse_forgotten
from tasklib.worker.workflows.engine import Engine
from tasklib.worker.workflows.pipe_journal import PipeJournal

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

_making_context: Final = threading.Lock()


def main() -> None:
    """Run the tasks that the worker sends over the sockets inherited from it."""
    work, control, worker = map(int, sys.argv[1:4])
    _die_with(worker)
    connection, lifeline = socket.socket(fileno=work), socket.socket(fileno=control)
    for each in (connection, lifeline):
        each.set_inheritable(False)
        # The worker would take a fork of this process for this one.
        os.register_at_fork(after_in_child=each.close)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
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
        self._runner: asyncio.Runner | None = None
        self._running: ChildAttempt | None = None
        self._coroutine: asyncio.Task[Any] | None = None
        self._asked = threading.Event()
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
            if self._asked.is_set():
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
            self._asked.set()

    def on_sigterm(self, *_: object) -> None:
        """End the work if it was the worker that sent SIGTERM.

        A service manager may signal every process of the service; then the worker decides how long its tasks go on.
        """
        if not self._asked.wait(ASKED_SECONDS):
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
                return None if self._asked.is_set() else ["unloadable", describe(error), never]
            self._channel.send(["begun"])
        started = time.monotonic()
        attempt = self._running = ChildAttempt(self, task, definition)
        try:
            result = self._call(self._caller.prepare(definition, task, attempt), definition.is_async)
            if result is COMMITTED:
                return ["committed"]
            if attempt.workflow is not None:
                if (ending := decided(task, definition, attempt.workflow)) is not None:
                    return _message(ending.between(started, time.monotonic()))
                refuse_forgotten(attempt.workflow)
            text = encode_result(result, limit=self._config.max_result_bytes)
            return ["done", text, started, time.monotonic()]
        except BaseException as thrown:  # noqa: BLE001  whatever the user's function raised
            if self._asked.is_set():
                return None
            raised = deciding(task, uncarried(thrown))
            if (ending := decided(task, definition, attempt.workflow, raised)) is not None:
                return _message(ending.between(started, time.monotonic()))
            if self._memory.explain(raised):
                self._channel.send(["leaving"])
            if self._queue is not None:
                call_error_hooks(self._queue.error_hooks, attempt.context, raised)
            ending = failed(task, raised, self._config.backoff, definition.options, attempt.context)
            return _message(ending.between(started, time.monotonic()))
        finally:
            self._running = None

    def context_of(self, attempt: ChildAttempt) -> TaskContext:
        """A context for the attempt, which reports to the worker."""
        task, definition = attempt.task, attempt.definition
        return context_class(definition.is_async)(
            partial(task.task, self._worker_id),
            state=self._state,
            worker_id=self._worker_id,
            report=partial(self._note, task.id),
            record=lambda level, text: self._channel.send(["line", task.id, level, text]),
            secrets=partial(secrets_of, definition),
            workflow=attempt.begin_workflow,
        )

    def workflow_of(self, attempt: ChildAttempt) -> AwaitingWorkflow | BlockingWorkflow:
        """A workflow for the attempt, which records in the worker's journal."""
        task, definition, context = attempt.task, attempt.definition, attempt.context
        limit, transactional = self._config.max_result_bytes, definition.options.transactional
        engine = Engine(task, context, self._timing, max_value_bytes=limit, is_transactional=transactional)
        journal = PipeJournal(self._channel, self._inbox)
        conditions = Conditions(self._timing, self.middleware)
        return workflow_for(engine, journal, lambda: self.database, conditions, awaits=definition.is_async)

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
        self._definitions[name] = definition
        return definition

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

    def _note(self, task_id: str, fraction: float, message: str | None) -> None:
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


class ChildAttempt:
    """An attempt that runs here.  Its context is made on first use, once, whichever thread asks first, and its workflow
    by its first step: most tasks use neither."""

    __slots__ = ("_context", "_host", "_is_asked", "definition", "task", "workflow")

    def __init__(self, host: Host, task: ClaimedTask, definition: Definition) -> None:
        self.task = task
        self.definition = definition
        self.workflow: AwaitingWorkflow | BlockingWorkflow | None = None
        self._host = host
        self._context: TaskContext | None = None
        self._is_asked = False

    @property
    def context(self) -> TaskContext:
        """What the function can read and report."""
        return self._context or self._make_context()

    def begin_workflow(self) -> AwaitingWorkflow | BlockingWorkflow:
        """Its steps and waits; called by the context's first step."""
        if self.workflow is None:
            self.workflow = self._host.workflow_of(self)
        return self.workflow

    def ask_to_end(self) -> None:
        """Ask the function to end; called in another thread, while this one may be anywhere, so without a lock."""
        self._is_asked = True
        if self._context is not None:
            self._context.ask_to_end()

    def _make_context(self) -> TaskContext:
        with _making_context:
            if self._context is None:
                self._context = self._host.context_of(self)
                if self._is_asked:  # looked at after the context is visible, so that the request is not missed
                    self._context.ask_to_end()
            return self._context


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


def _message(ending: Ending) -> list[Any]:
    error = None if ending.error is None else bounded(ending.error, ERROR_CHARACTERS)
    begun = (ending.started, ending.ended, None)
    workflow = (ending.waits_for, ending.waits_on, ending.reopen, ending.arguments)
    return ["ended", ending.event.value, ending.delay, error, ending.outcome, *begun, *workflow]


if __name__ == "__main__":
    main()
