"""One child process, in its worker: it runs the tasks it is sent, and can be ended at any time.

It runs one task at a time.  Very short tasks are sent several at a time, so that neither process has to be woken for
each.  When one takes longer than expected, those behind it are recalled and run elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion, completed
from tasklib.core.texts.error_text import summary
from tasklib.errors import ClaimLost, ProcessDied, ProcessNotReady, TaskLibError
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Attempt, AttemptRunner
from tasklib.worker.execution.call import COMMITTED
from tasklib.worker.execution.processes.import_path import Address
from tasklib.worker.execution.processes.log_forwarding import show
from tasklib.worker.execution.processes.orphan_killer import OrphanKiller
from tasklib.worker.execution.processes.os_process import TERM_SECONDS, Death, OsProcess
from tasklib.worker.messages import RECALL, Channel
from tasklib.worker.workflows.effects import Request

LOAD_SECONDS = 60.0
"""How long a child may take to import a task."""
STOP_SECONDS = 5.0
"""How long the shutdown hooks of an idle child may take."""
LOADS = 3
"""How many children may die, for any reason, while they load a task, before the task fails."""
RECALL_SECONDS = 0.05
"""How long one task may keep those that were sent behind it waiting."""
MANY = 16
"""With so many tasks still ahead of it, a child's answers are read together, and not each as it arrives."""
READ_SECONDS = 0.001
"""How long answers wait to be read together."""


@dataclass(eq=False, slots=True)
class Job:
    """An attempt to run in a child, and how far it has come there."""

    attempt: Attempt
    runner: AttemptRunner
    memory_limit_mb: int | None
    task: ClaimedTask = field(init=False)
    """The task as it was claimed."""
    address: Address = field(init=False)
    child: Child | None = None
    """The child that has it."""
    loads: int = 0
    """How many children have started to load it."""
    is_ending: bool = False

    def __post_init__(self) -> None:
        self.task = self.attempt.task


class ChildOwner(Protocol):
    """The executor that gives a child its jobs."""

    def freed(self, child: Child) -> None:
        """Called when the child is idle."""

    def returned(self, job: Job) -> None:
        """Called for a job that was not started and must run in another child."""

    def completed(self, ends: Sequence[tuple[Job, Completion]]) -> None:
        """Called with jobs that have succeeded, each once."""

    def over(self, job: Job, result: Any) -> None:
        """Called once when a job has ended: with its Completion or Ending, COMMITTED, an exception, or None if we ended
        it."""

    def ended(self, child: Child) -> None:
        """Called when the child has ended."""


class Child:
    """A child process; `reaped` is done when nothing of it is left in the process table."""

    def __init__(
        self,
        introduction: Mapping[str, Any],
        orphan_killer: OrphanKiller,
        owner: ChildOwner,
    ) -> None:
        self.memory_limit_mb: int | None = introduction["memory_limit_mb"]
        self.jobs: deque[Job] = deque()
        """The task it runs, and those sent ahead."""
        self.tasks = 0
        """How many tasks it has been given."""
        self.leaving = False
        """Whether it gets no more tasks."""
        self.recalled = False
        """Whether it was asked to return tasks it has not started."""
        self.loaded: set[str] = set()
        """The names of the tasks it has loaded."""
        self._is_ending = False
        self._not_loaded: ProcessNotReady | None = None
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._recall_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._is_sending = False
        self.reaped: asyncio.Future[None] = self._loop.create_future()
        work, theirs = socket.socketpair()
        self._lifeline, their_lifeline = socket.socketpair()
        self._lifeline.setblocking(False)
        try:
            ends = (theirs.fileno(), their_lifeline.fileno())
            self._process = OsProcess(ends, orphan_killer, self)
        except OSError:  # no process can be started now
            work.close()
            self._lifeline.close()
            raise
        finally:
            theirs.close()
            their_lifeline.close()
        self._channel = Channel(work)
        self._loop.add_reader(self._channel, self._receive)
        self._send({**introduction, "python_path": os.environ.get("PYTHONPATH")})

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    @property
    def is_behind(self) -> bool:
        """Whether some of its jobs are still to be sent: large arguments are not sent ahead without bound."""
        return self._channel.is_full

    def run(self, job: Job) -> None:
        """Give it a task; while it is busy, only one whose function it has loaded."""
        job.child = self
        self.tasks += 1
        self.jobs.append(job)
        if len(self.jobs) == 1:
            self._begin(job)
        elif self._recall_timer is None:
            self._recall_timer = self._loop.call_later(RECALL_SECONDS, self._check_waiting, self.jobs[0])
        # Its import path and its declaration are sent once.
        self._send([job.task.fields, job.task.claim, None if job.task.name in self.loaded else job.address])

    def end(self, job: Job) -> None:
        """End a task: a running one together with its process, a waiting one once it has been recalled."""
        if self.jobs and self.jobs[0] is job:
            self.end_running()
        else:
            self._recall()

    def end_running(self) -> None:
        """End the process and everything it has started: SIGTERM first, then SIGKILL."""
        if not self._is_ending:
            self._is_ending = self.leaving = True
            self._signal(b"e")
            self._process.terminate()
            self._after(TERM_SECONDS, self._process.kill)

    def leave(self) -> None:
        """Let it run the shutdown hooks and end, as soon as it has no task."""
        self.leaving = True
        if not self.jobs and not self._is_ending:
            self._channel.flush()
            self._channel.finish()
            self._after(STOP_SECONDS, self._process.kill)

    def _begin(self, job: Job) -> None:
        """Note that the child starts this job now."""
        # From here on, while it is loaded too, its code may crash the process.
        job.runner.note_running(job.attempt)
        if job.is_ending:
            self.end_running()
        elif job.task.name in self.loaded:
            self._begun(job)
        else:
            job.loads += 1
            self._after(LOAD_SECONDS, self._overdue)

    def _send(self, message: Any) -> None:
        """Send a message together with all others of this turn of the event loop."""
        self._channel.put(message)
        if not self._is_sending:
            self._is_sending = True
            self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        self._is_sending = False
        if not self._channel.flush():
            self._loop.add_writer(self._channel, self._send_rest)

    def _send_rest(self) -> None:
        if self._channel.flush():
            self._loop.remove_writer(self._channel)

    def _receive(self) -> None:
        done: list[tuple[Job, Completion]] = []
        try:
            for message in self._channel.receive():
                if message[0] == "done" and self.jobs:
                    done.append(self._complete(*message[1:]))
                else:
                    self._received(message)
        finally:
            if done:
                self._owner.completed(done)
        if self._channel.is_closed:
            self._disconnect()
            self._process.look()
            if not self.leaving:  # The process is useless once its pipe is broken.
                self.leaving = True
                self._after(TERM_SECONDS, self._process.kill)
        elif len(self.jobs) >= MANY:
            self._loop.remove_reader(self._channel)
            self._read_timer = self._loop.call_later(READ_SECONDS, self._read_on)

    def _read_on(self) -> None:
        self._read_timer = None
        self._loop.add_reader(self._channel, self._receive)

    def _disconnect(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)

    def _received(self, message: Any) -> None:
        """Handle a message of the child: a log record, or news of its task."""
        if message[0] == "log":
            show(message[1])
            return
        if not self.jobs:
            return
        job = self.jobs[0]
        task = job.task
        match message:
            case ["ended", event, *rest]:
                self._finish(Ending(task.id, task.version, Event(event), *rest))
            case ["committed"]:
                self._finish(COMMITTED)
            case ["begun"]:
                self.loaded.add(task.name)
                if not self._is_ending:
                    self._after(None)
                    self._begun(job)
            case ["progress", task.id, fraction, text]:
                job.attempt.context.progress(fraction, text)
            case ["line", task.id, level, text]:
                job.attempt.context.keep_line(level, text)
            case ["ask", number, task.id, name, params]:
                own_task(self._answer(job, number, Request(name, params)))
            case ["returned", [*task_ids]]:
                self._take_back(task_ids)
            case ["leaving"]:
                self.leaving = True
            case ["unloadable", text, never]:
                self.leaving = True
                self._finish(ProcessNotReady(f"could not load the task: {summary(text)}\n{text}", never=never))
            case _:
                pass  # about a task that has ended

    async def _answer(self, job: Job, number: int, request: Request) -> None:
        """Answer a request of a workflow in the child, from the worker's journal."""
        try:
            answer = [True, await job.runner.journal.ask(job.task, request)]
        except ClaimLost as error:
            answer = [False, "ClaimLost", str(error)]
        except TaskLibError as error:
            answer = [False, "StorageError", str(error)]
        if not self._channel.is_closed:
            self._send(["answer", number, *answer])

    def _begun(self, job: Job) -> None:
        """Note that the function is being called: its timeout starts now."""
        job.attempt.begin()
        job.attempt.limit_time()

    def _complete(self, text: str, started: float, ended: float) -> tuple[Job, Completion]:
        """Note that the running task has succeeded, and that the next one starts."""
        job = self.jobs.popleft()
        job.child = None
        self._go_on()
        return job, completed(job.task, text, started, ended, job.attempt.progress)

    def _finish(self, result: Any) -> None:
        """Note that the running task has ended: the next one starts, or the process becomes idle, or it ends."""
        job = self.jobs.popleft()
        job.child = None
        self._go_on()
        self._owner.over(job, result)

    def _go_on(self) -> None:
        if self.jobs:
            self._begin(self.jobs[0])
        elif self.leaving:
            self.leave()
        else:
            self.recalled = False
            self._owner.freed(self)

    def _check_waiting(self, head: Job) -> None:
        """Recall the tasks that have waited too long behind the same one."""
        self._recall_timer = None
        if len(self.jobs) < 2:
            return
        if self.jobs[0] is head:
            self._recall()
        else:
            self._recall_timer = self._loop.call_later(RECALL_SECONDS, self._check_waiting, self.jobs[0])

    def _recall(self) -> None:
        if not self.recalled:
            self.recalled = True
            self._send(RECALL)
            self._signal(b"r")

    def _take_back(self, task_ids: Sequence[str]) -> None:
        """Take back tasks that the child has not started and will not start."""
        back = [job for job in self.jobs if job.task.id in task_ids]
        self.jobs = deque(job for job in self.jobs if job not in back)
        if back and not self.jobs:
            self._go_on()  # The one before them has ended meanwhile.
        for job in back:
            job.child = None
            if job.is_ending:
                self._owner.over(job, None)
            else:
                self._owner.returned(job)

    def _overdue(self) -> None:
        self._not_loaded = ProcessNotReady(f"did not load the task within {LOAD_SECONDS:g} s")
        self.end_running()

    def died(self, death: Death) -> None:
        """Called when the process has died: its first task died with it, and the others were not started unless we
        ended it."""
        self.leaving = True
        if not self._channel.is_closed:
            self._receive()  # What it had sent before it ended.
            self._disconnect()
        self._channel.close()
        self._lifeline.close()
        self._after(None)
        if self._recall_timer is not None:
            self._recall_timer.cancel()
        jobs, self.jobs = list(self.jobs), deque()
        self._owner.ended(self)
        for position, job in enumerate(jobs):
            job.child = None
            if job.is_ending:
                self._owner.over(job, None)
            elif self._not_loaded is not None:
                self._owner.over(job, self._not_loaded)
            elif self._is_ending:
                # The task we meant to end may have ended by itself, and the next one may have been hit instead.
                self._owner.over(job, Ending.release(job.task.id, job.task.version))
            elif position == 0 and (job.task.name in self.loaded or job.loads >= LOADS):
                self._owner.over(job, self._cause(job, death))
            else:
                self._owner.returned(job)
        self.reaped.set_result(None)

    def _cause(self, job: Job, death: Death) -> ProcessDied | ProcessNotReady:
        how = death.how
        if job.task.name not in self.loaded:
            return ProcessNotReady(f"{how} before it had loaded the task{death.too_little(self.memory_limit_mb)}")
        if death.reached(self.memory_limit_mb):
            how = f"{how}: memory limit of {self.memory_limit_mb} MiB reached"
        return ProcessDied(how, pid=self.pid, code=death.code)

    def _signal(self, word: bytes) -> None:
        with suppress(OSError):
            self._lifeline.send(word)

    def _after(self, seconds: float | None, act: Callable[[], None] = lambda: None) -> None:
        """Replace the timer: call this after so many seconds instead of what was scheduled before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, act)
