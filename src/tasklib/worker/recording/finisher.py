"""Recording how attempts ended: a single one at once, many in one statement, each fenced by its version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from tasklib.core.calls.middleware import EndHook, call_end_hooks
from tasklib.core.calls.own_tasks import own_task
from tasklib.core.lifecycle import EFFECTS, Ending
from tasklib.core.outcome import Completion
from tasklib.core.retry import OUTAGE_PAUSE, OUTAGES
from tasklib.errors import TaskLibError
from tasklib.storage.database import Database
from tasklib.storage.operations import attempts
from tasklib.storage.operations.workflows.marks import MEMBER
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.control import WorkerControl
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.recording.notes import Lines

BATCH = 1000
Ends = Sequence[tuple[ClaimedTask | None, Completion | Ending]]
"""How attempts ended, each with its task where that is known."""

log = logging.getLogger("tasklib.worker")


class Finisher:
    """Writes outcomes while the worker goes on; those that arrive during one write share the next."""

    def __init__(
        self, database: Database, metrics: Metrics, control: WorkerControl, end_hooks: Sequence[EndHook] = ()
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._end_hooks = end_hooks
        self._control = control
        self._timing = control.timing
        self._ends: list[tuple[ClaimedTask | None, Completion | Ending]] = []
        self._on_its_way: Ends = ()
        self._was_cut_short = False
        """Whether what is on its way may be in the database already: its write was cancelled before the answer came."""
        self._lines: Lines = {}
        self._writing: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._gave_up = False

    def add(self, task: ClaimedTask | None, ending: Ending) -> None:
        """Record an outcome soon."""
        self.add_all([(task, ending)])

    def add_all(self, ends: Ends, lines: Lines | None = None) -> None:
        """Record outcomes soon, after the lines that these attempts have logged."""
        if lines:
            self._lines.update(lines)
        self._ends.extend(ends)
        if ends or lines:
            self._begin_writing()

    def unrecorded(self) -> Iterator[ClaimedTask]:
        """Tasks whose work has ended but whose outcome is not in the database yet: this worker still holds them."""
        return (task for task, _ in chain(self._on_its_way, self._ends) if task is not None)

    def _begin_writing(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = own_task(self._write())

    async def flush(self) -> None:
        """Wait until everything added so far is recorded or refused; failed writes are tried again now."""
        self._again.set()
        while self._writing is not None and not (self._writing.done() and self._is_idle):
            # A program that ends has cancelled the write as well: repeating it is harmless.
            self._begin_writing()
            await asyncio.wait({self._writing})
            if not self._writing.cancelled():
                self._writing.result()

    def give_up(self) -> None:
        """Stop trying to record what is left: other workers recover those tasks."""
        self._gave_up = True
        if self._writing is not None:
            self._writing.cancel()

    @property
    def _is_idle(self) -> bool:
        return self._gave_up or not (self._ends or self._lines or self._on_its_way)

    async def _write(self) -> None:
        while self._ends or self._lines or self._on_its_way:
            if self._lines:
                await self._persist_lines()
            if not self._on_its_way:
                self._on_its_way, self._ends = self._ends[:BATCH], self._ends[BATCH:]
            try:
                await self._persist(self._on_its_way, again=self._was_cut_short)
            except asyncio.CancelledError:
                self._was_cut_short = True
                raise  # The batch stays unrecorded: `flush` writes it again.
            except BaseException:
                self._on_its_way, self._was_cut_short = (), False
                raise
            self._on_its_way, self._was_cut_short = (), False

    async def _persist_lines(self) -> None:
        """Write the last log lines, with a single try; outcomes are retried until they are written."""
        lines, self._lines = self._lines, {}
        try:
            await self._database.arun(lambda: attempts.append_log(lines))
        except TaskLibError as error:
            log.warning("the last log lines of %d tasks are lost: %s", len(lines), error)

    async def _persist(self, batch: Ends, *, again: bool = False) -> None:
        """Write one batch, retrying while the database is away: repeating is harmless, because every row is fenced."""
        failures = 0
        while True:
            try:
                refused = await self._send(batch, again=again or failures > 0)
                for task_id in refused:
                    log.warning("late write refused: task %s was no longer ours", task_id, extra={"task_id": task_id})
                self._recorded(batch, refused)
                return
            except OUTAGES as error:
                if failures == 0:
                    log.warning("cannot record %d outcomes, trying until the database is back: %s", len(batch), error)
                self._again.clear()
                await self._timing.wait(self._again, OUTAGE_PAUSE(failures))
                failures += 1
            except TaskLibError:
                if len(batch) == 1:
                    task_id = batch[0][1].task_id
                    log.exception("cannot record the end of task %s; its lease will run out", task_id)
                    self._recorded(batch, {task_id})
                    return
                # One bad row must not fail the others, some of which may be recorded already.
                for position in range(len(batch)):
                    await self._persist(batch[position : position + 1], again=True)
                return

    def _recorded(self, batch: Ends, refused: Collection[str]) -> None:
        """Count what the database has accepted; tasks that did not complete may be due again."""
        self._metrics.note(
            [(task, ended) for task, ended in batch if task is not None and ended.task_id not in refused]
        )
        if any(isinstance(ended, Ending) for _, ended in batch):
            self._control.wake()
        if self._end_hooks:
            call_end_hooks(
                self._end_hooks,
                [ended.task_id for _, ended in batch if ended.task_id not in refused and _is_final(ended)],
            )
        if any(task is not None and task.marks for task, _ in batch):
            self._control.workflow_signals.children_ended.set()

    async def _send(self, batch: Ends, *, again: bool) -> set[str]:
        """Write the batch; returns the ids of tasks that were no longer ours."""
        refused: set[str] = set()
        counts_members = self._database.dialect == "postgres"
        plain: list[Completion] = []
        members: list[Completion] = []
        for task, ended in batch:
            if isinstance(ended, Completion):
                is_member = counts_members and task is not None and task.marks & MEMBER
                (members if is_member else plain).append(ended)
        for completions in filter(None, (plain, members)):
            refused |= await self._complete(completions, again=again, members=completions is members)
        if endings := [ended for _, ended in batch if isinstance(ended, Ending)]:
            refused |= await self._database.arun(
                lambda: attempts.end_attempts(endings, moment=self._timing.monotonic(), again=again)
            )
        return refused

    async def _complete(self, completions: Sequence[Completion], *, again: bool, members: bool) -> set[str]:
        moment = self._timing.monotonic
        return await self._database.arun(
            lambda: attempts.complete_tasks(completions, moment=moment(), again=again, members=members)
        )


def _is_final(ended: Completion | Ending) -> bool:
    return isinstance(ended, Completion) or EFFECTS[ended.event].terminal
