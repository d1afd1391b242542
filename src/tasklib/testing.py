"""For tests of programs that use tasklib: a queue of their own for each test, run on demand, its clock set by the test.

    with isolated(queue) as tasks:
        sign_up("ada")
        tasks.assert_submitted(send_email, to="ada")
        tasks.drain()
        tasks.work(days=1)

The real storage and the real worker run, on a database in memory: what holds here holds in production.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tasklib.core.codec import plain
from tasklib.core.task import Task
from tasklib.core.time.clock import ManualClock
from tasklib.core.time.virtual_time import VirtualLoop, VirtualTiming
from tasklib.errors import ConfigurationError
from tasklib.queue import TaskQueue, default
from tasklib.queue.methods.working import run_coroutine
from tasklib.storage import connect
from tasklib.submission import TaskFunction

IN_MEMORY = "sqlite:///:memory:"
MOST_TASKS = 10_000
"""A drain that has run this many attempts is taken to be endless."""

POLL_SECONDS = 600.0
"""How often a worker polls: rarely, because every change of the database is made in this process, and wakes it."""
BEAT_SECONDS = 3600.0
"""The shortest interval between heartbeats: there is no other worker that could recover its tasks."""

R = TypeVar("R")
AnyTask = str | TaskFunction[..., Any] | Callable[..., Any]


@contextmanager
def isolated(
    queue: TaskQueue | None = None, *, url: str = IN_MEMORY, clock: ManualClock | None = None, inline: bool = False
) -> Generator[TestTasks]:
    """Let a queue, or the default one, work on a database of its own inside the block; afterwards it is as before.

    Its clock stands still until it is moved.  With `inline` every submitted task that is due has been run when its
    submission returns.

    Examples:
        >>> from tasklib.testing import isolated
        >>> with isolated(queue) as tasks:
        ...     task_id = add.submit(1)
        ...     ran = tasks.drain()
        ...     tasks.assert_submitted(add, a=1)[0].result
        {'value': 2}
    """
    chosen = default.default_queue_or(url) if queue is None else queue
    before = chosen.config, chosen.database
    chosen.config = chosen.config.with_(database_url=url, db_schema=None, retry_jitter=0.0)
    moved = clock or ManualClock()
    chosen._database = connect(chosen.config, moved)  # noqa: SLF001  nobody else may change it
    tasks = TestTasks(chosen, moved)
    try:
        with _inline(chosen, tasks) if inline else _unchanged():
            yield tasks
    finally:
        chosen.database.close()
        chosen.config, chosen._database = before  # noqa: SLF001


class TestTasks:
    """What a test asks and does; made by `isolated`.

    Examples:
        >>> from tasklib.testing import isolated
        >>> with isolated(queue) as tasks:
        ...     task_id = add.options(delay_seconds=86_400).submit(1)
        ...     tasks.drain(), tasks.clock.advance(days=1) and tasks.drain()
        (0, 1)
    """

    __test__ = False  # pytest collects classes by such names

    def __init__(self, queue: TaskQueue, clock: ManualClock) -> None:
        self.queue = queue
        self.clock = clock
        self.draining = False

    def drain(self, *, advance: bool = False) -> int:
        """Run everything that is due in this process, and what that submits; returns how many attempts were run.

        With `advance` the clock is moved on to delayed tasks, retries and the ends of sleeps, one after the other,
        until nothing is left.  Workflows that wait for an event, an answer or other tasks stay: emit the event or
        answer, or let their timeouts pass with `work`.

        Examples:
            >>> from tasklib.testing import isolated
            >>> with isolated(queue) as tasks:
            ...     task_id = add.options(delay_seconds=86_400).submit(1)
            ...     tasks.drain(advance=True)
            1
        """
        return run_coroutine(lambda: self.adrain(advance=advance))

    async def adrain(self, *, advance: bool = False) -> int:
        """The awaiting form of `drain`."""
        done, self.draining = 0, True
        try:
            while done < MOST_TASKS:
                ran = await self.queue.aprocess_batch(MOST_TASKS - done)
                done += ran
                if not ran and not (advance and await self._advance()):
                    return done
        finally:
            self.draining = False
        raise AssertionError(f"still not done after {done:,} attempts; does a task submit itself again and again?")

    @contextmanager
    def restart_after_each_step(self) -> Generator[None]:
        """Let workflows begin anew from the top after every step that they record, as after a crash there.

        A workflow that does the same each time ends as without it.  One that does not, because of the time, of chance
        or of what it does outside of steps, ends otherwise, or is parked by NonDeterminism: the test finds it.

        Examples:
            >>> from tasklib.testing import isolated
            >>> with isolated(queue) as tasks, tasks.restart_after_each_step():
            ...     task_id = add.submit(1)
            ...     tasks.drain(advance=True)
            1
        """
        before, self.queue.restarts_workflows = self.queue.restarts_workflows, True
        try:
            yield
        finally:
            self.queue.restarts_workflows = before

    def work(self, seconds: float = 0.0, *, concurrency: int = 10, **parts: float) -> None:
        """Let a worker work for seconds and any keyword of `timedelta`, while the clock moves as fast as it can.

        Schedules, delays, retries, timeouts and `asyncio.sleep` in tasks come at their exact moments.  What still runs
        at the end is released.

        Examples:
            >>> from tasklib.testing import isolated
            >>> with isolated(queue) as tasks:
            ...     schedule = queue.add_schedule("hourly", task="add", every=3600.0, kwargs={"a": 1})
            ...     tasks.work(days=1, minutes=1)
            ...     len(tasks.submitted(add))
            24
        """
        self.run(asyncio.sleep(timedelta(seconds=seconds, **parts).total_seconds()), concurrency=concurrency)

    def run(self, scenario: Coroutine[Any, Any, R], *, concurrency: int = 10) -> R:
        """The result of a coroutine that runs beside a worker, on an event loop of its own whose time is the clock's.

        `await asyncio.sleep(3600)` lets an hour pass: the clock moves to the next moment for which anything waits as
        soon as nothing else can run.  Plain functions run in threads, are waited for, and take no time.

        Examples:
            >>> from tasklib.testing import isolated
            >>> async def cancelled_after_a_minute() -> str:
            ...     task_id = await add.options(delay_seconds=3600).asubmit(1)
            ...     await asyncio.sleep(60)
            ...     return (await queue.acancel(task_id)).state.value
            >>> with isolated(queue) as tasks:
            ...     tasks.run(cancelled_after_a_minute())
            'cancelled'
        """
        if not self.queue.config.is_sqlite:
            scenario.close()
            raise ConfigurationError(
                "time can be moved for a worker on SQLite only: a server answers in its own time; leave out url="
            )
        return run_coroutine(lambda: self._beside_worker(scenario, concurrency), lambda: VirtualLoop(self.clock))

    async def _beside_worker(self, scenario: Coroutine[Any, Any, R], concurrency: int) -> R:
        queue, before = self.queue, (self.queue.config, self.queue.timing)
        beat = max(BEAT_SECONDS, queue.config.heartbeat_interval_seconds)
        patience = max(10 * beat, queue.config.worker_timeout_seconds)
        queue.config = queue.config.with_(
            poll_interval_seconds=POLL_SECONDS, heartbeat_interval_seconds=beat, worker_timeout_seconds=patience
        )
        queue.timing = VirtualTiming(self.clock)
        self.draining = True
        worker = asyncio.ensure_future(queue.arun(concurrency, grace_seconds=0))
        playing = asyncio.ensure_future(scenario)
        try:
            await asyncio.wait({worker, playing}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                worker.result()
            return await playing
        finally:
            playing.cancel()
            worker.cancel()
            await asyncio.gather(worker, playing, return_exceptions=True)
            (queue.config, queue.timing), self.draining = before, False

    def submitted(self, task: AnyTask | None = None) -> list[Task]:
        """Every task that was submitted, of all kinds or of one, in order; whatever became of it.

        Examples:
            >>> from tasklib.testing import isolated
            >>> with isolated(queue) as tasks:
            ...     task_id = add.submit(1)
            ...     [task.kwargs for task in tasks.submitted(add)]
            [{'a': 1}]
        """
        found = self.queue.list(name=None if task is None else _name(task), limit=MOST_TASKS)
        return sorted(found, key=lambda each: each.seq)

    def assert_submitted(
        self, task: AnyTask, arguments: Mapping[str, Any] | None = None, /, *, times: int | None = None, **more: Any
    ) -> list[Task]:
        """The tasks submitted with these arguments, other arguments left open; an AssertionError if there is none.

        With `times` there must be exactly so many.  An argument of that name is given in the mapping.

        Examples:
            >>> from tasklib.testing import isolated
            >>> with isolated(queue) as tasks:
            ...     ids = add.submit(1), add.submit(1, b=2)
            ...     len(tasks.assert_submitted(add, a=1, times=2))
            2
        """
        wanted = plain({**(arguments or {}), **more}, what="arguments")
        submitted = self.submitted(task)
        found = [each for each in submitted if _holds(each.kwargs, wanted)]
        if len(found) == times or (times is None and found):
            return found
        how_often = "never" if not found else f"{len(found)} times"
        expected = "" if times is None else f" instead of {times} times"
        others = "".join(f"\n  {each.name} {each.kwargs}" for each in submitted or self.submitted())
        raise AssertionError(
            f"{_name(task)} was submitted {how_often}{expected} with {wanted}; submitted were:{others or ' no tasks'}"
        )

    def assert_not_submitted(self, task: AnyTask, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """No task was submitted with these arguments.

        Examples:
            >>> from tasklib.testing import isolated
            >>> with isolated(queue) as tasks:
            ...     task_id = add.submit(1)
            ...     tasks.assert_not_submitted(add, a=2)
        """
        self.assert_submitted(task, {**(arguments or {}), **more}, times=0)

    async def _advance(self) -> bool:
        """Move the clock to the next task that is not due yet; False if there is none."""
        waiting = await self.queue.alist(state=["pending", "retrying"], limit=MOST_TASKS)
        now = self.clock.now()
        later = [due for each in waiting if _passes(each) and (due := each.due_at) is not None and due > now]
        if later:
            self.clock.advance(_seconds(min(later), now))
        return bool(later)


@contextmanager
def _inline(queue: TaskQueue, tasks: TestTasks) -> Generator[None]:
    """Drain after every submission, unless it is part of a transaction or of a drain."""
    submit, asubmit = queue.submit_new, queue._store  # noqa: SLF001  through which every awaiting form goes

    def submit_and_run(new: Any, connection: Any = None) -> Any:
        ids = submit(new, connection)
        if connection is None and not tasks.draining:
            tasks.drain()
        return ids

    async def asubmit_and_run(new: Any, connection: Any = None) -> Any:
        ids = await asubmit(new, connection)
        if connection is None and not tasks.draining:
            await asyncio.shield(tasks.adrain())
        return ids

    # On the object, before the methods of its class.
    vars(queue).update(submit_new=submit_and_run, _store=asubmit_and_run)
    vars(queue).pop("_merger", None)
    try:
        yield
    finally:
        for name in ("submit_new", "_store", "_merger"):
            vars(queue).pop(name, None)


@contextmanager
def _unchanged() -> Generator[None]:
    yield


def _name(task: AnyTask) -> str:
    if isinstance(task, str):
        return task
    name = getattr(task, "name", None)
    if not isinstance(name, str):
        raise ConfigurationError(f"{task!r} is not a task; give a decorated function or a name")
    return name


def _passes(task: Task) -> bool:
    """Whether time alone lets it go on: not if its due time is only when its wait for somebody times out."""
    return task.waits_for is None or task.waits_for.split()[0] in ("sleep", "retry", "budget")


def _holds(given: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(given, dict) and all(key in given and given[key] == value for key, value in wanted.items())


def _seconds(later: datetime, now: datetime) -> float:
    return (later - now).total_seconds()
