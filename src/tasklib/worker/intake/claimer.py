"""Claiming: as many tasks as fit, at once when something becomes due, and not at all while nothing is."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from math import inf

from tasklib.core.lifecycle import Ending
from tasklib.core.retry import OUTAGE_PAUSE
from tasklib.errors import TaskLibError
from tasklib.storage.operations import claims, workers
from tasklib.storage.operations.claims import Claimed
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.runner import Runner
from tasklib.worker.intake.claim_cursor import ClaimCursor
from tasklib.worker.intake.selection import TaskSelection
from tasklib.worker.intake.wakeups import Wakeups
from tasklib.worker.upkeep.instance import Instance

CONTENDED_SECONDS = 0.002
IDLE_FOR_SECONDS = 30.0
"""How long one declaration of idleness holds; it is renewed before that."""
SILENT_SECONDS = 1.0
"""How often to check whether claiming may resume, while heartbeats fail."""
GOODBYE_SECONDS = 1.0
"""How long to try to pass a notification on when stopping; one that is lost costs a poll interval."""
FLEET_LOOKS = 50
"""Polls per second of all idle workers together that are not notified."""

log = logging.getLogger("tasklib.worker")


class Claimer:
    """Claims tasks for what the worker can hold, until it is stopped."""

    def __init__(self, instance: Instance, runner: Runner, selection: TaskSelection, wakeups: Wakeups) -> None:
        self._instance = instance
        self._database = instance.database
        self._control = instance.control
        self._timing = instance.control.timing
        self._poll_batch = instance.poll_batch
        self._runner = runner
        self._held = runner.held
        self._finisher = runner.finisher
        self._size = runner.size
        self._selection = selection
        self._wakeups = wakeups
        self._notify_until = 0.0
        """Until when the database notifies this instance of new tasks; 0 if it does not."""
        self._may_be_forgotten = False
        """Whether the database may have lost that registration: a crash or a fail-over empties its list of idle
        workers."""
        self._notified = False
        """Whether only this instance was notified: it must pass on what it cannot take, because no other worker
        knows."""
        self._plain = self._database.dialect == "postgres"
        """Whether the smaller statement may be enough; not used on SQLite, where every statement is prepared
        quickly."""
        self._was_lone = False
        """Whether the last claim that found tasks found a single one: the next notification is likely for one too."""
        self._keyed = True
        """Whether the next claim checks concurrency keys: the last one found that some may have a task to start."""
        self._cursor = ClaimCursor()
        self._may_have_strays = False
        """Whether a claim whose answer was lost may have taken tasks."""
        self._generation = 0
        """Sent with each claim: one of an earlier generation, which this instance gave up on, takes nothing."""
        self.declared_dead = False
        """Set, and never cleared, when a claim or a heartbeat was refused: other workers run its tasks."""

    def notified(self, event: str) -> None:
        """Look for work, unless the notification is for another worker."""
        kind, _, instance = event.partition(":")
        if kind == "woken":
            self._cursor.woken(int(seq) for seq in instance.split(","))
        if kind == "new" and instance:
            if instance != str(self._instance.id):
                return
            self._notified = True
        # PostgreSQL's listener reports this after it has reconnected; SQLite's watcher at every change, since it has no
        # list.
        self._may_be_forgotten |= kind == "changed" and self._database.dialect == "postgres"
        self._control.wake()

    async def run(self) -> None:
        """Claim until stopped, or until this instance turns out to be declared dead."""
        failures = 0
        while not self._control.is_stopping and not self.declared_dead:
            self._runner.start_held()
            may_claim = self._instance.fence.may_claim
            wanted = self._wanted() if may_claim else 0
            try:
                # Before the next claim, which replaces what the database knows this instance to hold.
                if self._may_have_strays:
                    await self.release_strays()
                if wanted == 0:
                    await self._declare_busy()
                    # Nothing wakes this loop when heartbeats arrive again.
                    longest = inf if may_claim else SILENT_SECONDS
                    await self._control.sleep(min(self._selection.poll_seconds, longest))
                    continue
                self._control.look()
                claimed = await self._take(wanted)
                if failures:
                    log.info("the database is back")
                    failures = 0
                await self._pause(claimed)
            except TaskLibError as error:
                self._may_have_strays = self._may_be_forgotten = True
                if failures == 0:
                    log.warning("cannot claim tasks, trying until the database is back: %s", error)
                await self._control.sleep(OUTAGE_PAUSE(failures))
                failures += 1
        with suppress(TaskLibError, TimeoutError):
            async with self._timing.timeout(GOODBYE_SECONDS):
                await self._declare_busy()

    async def _take(self, wanted: int) -> Claimed:
        """Claim once and start the tasks; a notification for more than fits here is passed on to another worker."""
        notified, self._notified = self._notified, False
        lone = notified and self._was_lone
        claimed = await self.claim(wanted, lone=lone)
        if claimed.tasks or lone:
            self._was_lone = claimed.exhausted and len(claimed.tasks) == 1
        # A heartbeat may have found this instance declared dead before the answer came: then others run these tasks.
        self.declared_dead |= not claimed.registered
        if self.declared_dead:
            return claimed
        self._runner.hold(claimed.tasks)
        self._hold_less_beside_suspects(claimed)
        # Set before they start: a slot that one of them frees at once is no reason to claim again.
        self._note_nothing_left(claimed)
        full = len(claimed.tasks) == wanted
        if claimed.tasks and (not full or self._notify_until):
            # They start before the next statement is prepared, which takes longer than starting them.  A worker that
            # is always full has others to run meanwhile, and sends its next claim at once.
            self._runner.start_held()
            await asyncio.sleep(0)
        if claimed.tasks:
            await self._wakeups.listen()
        # The claim of a single task that leaves more is followed by one for all the others.
        if full or (lone and not claimed.exhausted):
            self._notified |= notified
        if full:
            await self._declare_busy()
        elif notified and any(cap <= 0 for cap in self._selection.caps().values()):
            await self._database.arun(workers.wake_workers)
        return claimed

    async def claim(self, limit: int, *, lone: bool = False) -> Claimed:
        """Claim up to `limit` tasks now; a `lone` claim expects one and tries the smallest statement first."""
        held = [(task.seq, task.version) for task in self._claims()]
        selection, plain = self._selection, self._plain
        names, caps = selection.names(), selection.caps()
        keyed, limited = self._keyed, self._size.limited
        began = self._timing.monotonic()
        after = self._cursor.after(names, began)
        woken = self._cursor.take_woken()
        claimed = await self._database.arun(
            lambda: claims.claim_tasks(
                claims.Claim(
                    instance=self._instance.id,
                    generation=self._generation,
                    worker_id=self._instance.worker_id,
                    names=names,
                    limit=limit,
                    caps=caps,
                    plain=plain,
                    lone=lone,
                    after=after,
                    woken=woken,
                    keyed=keyed,
                    limited=limited,
                    retries=selection.retries(),
                    lease_seconds=selection.lease_seconds,
                    held=held,
                )
            ),
            # A claim whose answer was lost may have taken tasks: it is not sent again, its tasks are found and
            # released.
            repeatable=False,
        )
        self._size.limited = claimed.limited
        self._plain = claimed.plain and self._database.dialect == "postgres"
        self._keyed = claimed.hinted
        if after:
            self._cursor.continued(claimed.last)
            if len(claimed.tasks) == limit:
                self._cursor.woken(set(woken).difference(task.seq for task in claimed.tasks))
        else:
            self._cursor.scanned(claimed.last, began=began, ended=self._timing.monotonic())
        if claimed.tasks:
            self._control.has_claimed.set()
        for task in claimed.tasks:
            selection.limits.started(task.name)
        return claimed

    def _claims(self) -> Iterator[ClaimedTask]:
        """Everything this instance holds, or whose outcome it has not recorded yet: no other worker may run these."""
        return chain(self._held.tasks(), self._finisher.unrecorded())

    def _wanted(self) -> int:
        if self._control.is_stopping:
            return 0
        return self._size.next_claim(len(self._held.running), len(self._held.waiting))

    def _hold_less_beside_suspects(self, claimed: Claimed) -> None:
        """Hold only what can start now while there are suspects, tasks that lost their worker before: were this worker
        lost as well, everything it held would become suspect too."""
        self._size.has_suspects = any(task.lost_count for task in claimed.tasks)
        if self._size.has_suspects:
            self._runner.start_held()
            self._held.release_waiting(self._finisher, keep=self._size.next_claim(len(self._held.running), 0))

    async def _pause(self, claimed: Claimed) -> None:
        """Wait until there may be something to claim, which is at once after a claim that took tasks."""
        if self.declared_dead or (claimed.tasks and not (claimed.exhausted and self._notify_until)):
            return
        if claimed.contended:
            await self._timing.sleep(random.uniform(0, CONTENDED_SECONDS))
        elif not self._control.is_woken:
            await self._wait_for_work(claimed)

    async def _wait_for_work(self, claimed: Claimed) -> None:
        """Sleep until something is due.  A worker that is notified looks once more first, so that a task inserted in
        between is either seen or announced; one that is not notified polls, and leaves most tasks to the notified
        ones."""
        poll = self._selection.poll_seconds
        is_over = self._may_be_forgotten or self._timing.monotonic() > self._notify_until - poll
        if is_over and await self._ask_for_notifications():
            return
        self._note_nothing_left(claimed)
        if self._notify_until:
            try:
                await self._until_due(claimed, poll)
            finally:
                self._poll_batch.no_poll()
        else:
            pause = max(poll, self._instance.recovery.fleet / FLEET_LOOKS * random.uniform(0.8, 1.2))
            await self._control.sleep(_soonest(pause, self._selection.limits.next_in))
        self._control.nothing_to_claim = False

    async def _until_due(self, claimed: Claimed, poll: float) -> None:
        """Sleep until woken, or until a poll finds something to claim.  A poll only reads, and is nearly all that an
        idle worker sends."""
        next_due_in = claimed.next_due_in
        may_look = claimed.plain and not claimed.tasks and not self._selection.caps()
        while True:
            wait = _soonest(poll, next_due_in, self._selection.limits.next_in)
            polls = may_look and wait == poll
            if polls:
                self._poll_batch.expect_poll(poll)
            woken = await self._control.sleep(wait)
            # A notification of PostgreSQL means a task; SQLite's watcher reports every change, our heartbeats too.
            if not polls or (woken and self._database.dialect == "postgres"):
                return
            if self._control.is_stopping or self.declared_dead or not self._instance.fence.may_claim:
                return
            seen = await self._look_around(poll)
            if seen.may_claim or not self._notify_until:
                return
            next_due_in = seen.next_due_in

    async def _look_around(self, poll: float) -> claims.Seen:
        """Look for work of any kind, renew the registration for notifications, and wake the services that have work."""
        names = self._selection.names()
        seconds = None if self._timing.monotonic() < self._notify_until - 2 * poll else self._notify_seconds
        seen = await self._poll_batch.poll(lambda: claims.look_around(self._instance.id, names, notify_for=seconds))
        if seconds is not None:
            self._notify_until = self._timing.monotonic() + seconds if seen.is_notified else 0.0
        self._control.workflow_signals.looked(events=seen.events, groups=seen.groups)
        return seen

    def _note_nothing_left(self, claimed: Claimed) -> None:
        """Note that everything due is held here and that a notification announces more: until then there is nothing to
        claim."""
        self._control.nothing_to_claim = claimed.exhausted and bool(self._notify_until) and not self._selection.caps()

    async def _ask_for_notifications(self) -> bool:
        """Ask the database for notifications; returns whether it agreed.  If not, and nothing runs here, stop
        listening."""
        names, seconds = self._selection.names(), self._notify_seconds
        self._may_be_forgotten = False
        if await self._database.arun(lambda: workers.declare_idle(self._instance.id, names, seconds)):
            self._notify_until = self._timing.monotonic() + seconds
            await self._wakeups.listen()
            return True
        self._notify_until = 0.0
        if not self._held.running:
            self._wakeups.ignore()
        return False

    @property
    def _notify_seconds(self) -> float:
        """For how long to ask for notifications: long enough to outlast the next polls."""
        return max(IDLE_FOR_SECONDS, 3 * self._selection.poll_seconds)

    async def _declare_busy(self) -> None:
        """Unregister for notifications because this worker is busy; a pending one is passed on to another worker."""
        self._control.nothing_to_claim = False
        if self._notify_until or self._notified:
            self._notify_until, self._notified = 0.0, False
            names = self._selection.names()
            await self._database.arun(lambda: workers.declare_busy(self._instance.id, names))

    async def release_strays(self) -> None:
        """Release tasks of claims whose answer was lost; a claim still under way takes nothing."""
        known = {(task.id, task.version) for task in self._claims()}
        strays = await self._database.arun(lambda: workers.find_strays(self._instance.id, known))
        self._generation = strays.generation
        for task_id, version in strays.tasks:
            self._finisher.add(None, Ending.release(task_id, version))
        await self._finisher.flush()
        self._may_have_strays = False


def _soonest(*waits: float | None) -> float:
    return max(0.0, min(wait for wait in waits if wait is not None))
