"""One run of a scenario: workers, producers and people come, faults strike, and at the end everything must be done."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import uuid_utils.compat

from tasklib import Config, DatabaseBusy, DatabaseUnavailable, TaskQueue, UniqueConflict
from tasklib.worker import Worker, WorkerSettings
from tests.simulation import people
from tests.simulation.bodies import Stage
from tests.simulation.checks import KEPT_SECONDS, Checker
from tests.simulation.control import LoopTiming, controlled
from tests.simulation.emitters import Emitters
from tests.simulation.faults import Faults
from tests.simulation.history import START, History
from tests.simulation.link import BUSY_SECONDS, CALM, Link, Weather
from tests.simulation.loop import CURRENT, Process, Spinning, Stalled, VirtualLoop
from tests.simulation.remote import HttpService, HttpWorker
from tests.simulation.scenario import HORIZON, Act, Emission, FlowPlan, Scenario, Submission
from tests.simulation.server import Server
from tests.simulation.stories import BODIES, UNLIMITED_BODIES
from tests.simulation.truth import Truth
from tests.simulation.workflow_checks import FACTS_KEPT_SECONDS

T = TypeVar("T")

SETTLE_SECONDS = 400.0
"""How long everything may take that can still run, once everybody is well."""
QUIET_SECONDS = 15.0
MOST_OPERATIONS_A_SECOND = 6.0
"""Of one idle worker: it looks at the others, at the schedules, for work and at the statistics, about once a second."""
STATES = ("pending", "running", "completed", "failed", "cancelled", "buried")
BAD_LINE = Weather(lost_reply=0.2)
"""What people have, who try once and go by the answer."""
CONFIG = Config(
    database_url="sqlite:///:memory:",
    worker_timeout_seconds=6.0,
    heartbeat_interval_seconds=1.5,
    base_retry_delay_seconds=1.0,
    max_retry_delay_seconds=4.0,
    poll_interval_seconds=2.0,
    busy_timeout_seconds=BUSY_SECONDS,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    scenario: Scenario
    violations: tuple[str, ...]
    history: History
    steps: int
    seconds: float
    """Of virtual time."""

    @property
    def report(self) -> str:
        """What a person needs to see why it failed."""
        return (
            f"seed {self.scenario.seed} breaks a promise:\n  " + "\n  ".join(self.violations[:10]) + "\n\n"
            f"{self.scenario.describe()}\n\n{self.history.about()}"
        )


def run(scenario: Scenario) -> Outcome:
    """Run a scenario to its end, or to the first broken promise."""
    loop = VirtualLoop()
    world = World(scenario, loop)
    gc_was_on = gc.isenabled()
    gc.disable()  # what is collected when differs, and closes what a killed process has left
    asyncio.set_event_loop(None)
    try:
        with controlled(loop, scenario.seed), _logging_to(world.history):
            world.begin()
            try:
                loop.run_until_complete(world.play())
            except (Spinning, Stalled) as error:
                world.checker.broken(f"{type(error).__name__}: {error}")
            for error in world.unhandled_errors():
                world.checker.broken(f"nobody has handled: {error}")
            loop.discard_tasks()
    finally:
        if gc_was_on:
            gc.enable()
    world.server.real.close()
    loop.close()
    return Outcome(scenario, tuple(world.checker.violations), world.history, loop.steps, loop.now - START)


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer


class _LogLines(logging.Handler):
    """What workers log is a part of the history."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        self._history.add(process or "?", f"logs: {record.getMessage().splitlines()[0][:150]}")


@contextmanager
def _logging_to(history: History) -> Generator[None]:
    log, handler = logging.getLogger("tasklib"), _LogLines(history)
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


class World:
    """Everybody who takes part in one run."""

    def __init__(self, scenario: Scenario, loop: VirtualLoop) -> None:
        self.scenario = scenario
        self.loop = loop
        self.history = History(loop)
        self.truth = Truth(loop, self.history)
        self.config = CONFIG.with_(
            lock_timeout_seconds=scenario.lease_seconds,
            retention=f"facts={FACTS_KEPT_SECONDS:g}s"
            + (f", completed={KEPT_SECONDS:g}s" if scenario.has_retention else ""),
        )
        self.checker = Checker(self.config, self.truth, self.history)
        self.server: Server
        self.links: list[Link] = []
        self.workers: dict[int, tuple[Process, Worker, Link]] = {}
        self.service: HttpService | None = None
        self.remotes: dict[int, tuple[Process, HttpWorker]] = {}
        self.usual_weather = scenario.weather
        self._faults = Faults(self)
        self._emitters = Emitters(self.checker)
        self._running: dict[Process, Worker] = {}
        """Every worker that has not ended: while one drains, another may have taken its place."""
        self._starts = 0
        self._is_over = False
        """Nobody is started any more."""
        self._unconfirmed = 0
        """Submissions that were begun, and whose producers have no answer yet."""
        self._tasks: list[asyncio.Task[object]] = []

    def begin(self) -> None:
        """Open the database."""
        Stage.truth = self.truth
        self.server = Server(self.loop, self.history, self.checker)
        self.checker.attach(self.server)

    async def play(self) -> None:
        """The whole run."""
        for number in range(len(self.scenario.workers)):
            self.start_worker(number)
        if self.scenario.remote_workers:
            self.service = HttpService(self, self.scenario.random("http"))
        for number in range(len(self.scenario.remote_workers)):
            self.start_remote(number)
        for number, submission in enumerate(self.scenario.submissions):
            self._at(submission.at, self._submit(number, submission))
        for number, act in enumerate(self.scenario.acts):
            self._at(act.at, self._let_act(number, act))
        for fault in self.scenario.faults:
            self.loop.call_later(fault.at, self._faults.strike, fault)
        for number, schedule in enumerate(self.scenario.schedules):
            self._at(0.5, self._add_schedule(number, schedule))
        for number, emission in enumerate(self.scenario.emissions):
            self._at(emission.at, self._let_emit(number, emission))
        for number, plan in enumerate(self.scenario.flows):
            self._at(plan.at, self._submit_flow(number, plan))
        if self.scenario.has_workflows:
            self._at(0.0, self._set_budget())
        await self._until(HORIZON)
        await self._heal()
        await self._settle()
        await self._rest()
        await self._stop_all()

    def unhandled_errors(self) -> list[str]:
        """What callbacks and asyncio tasks raised: a part of the simulator that fails must not pass for calm."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [*self.loop.errors, *(repr(task.exception()) for task in ended if task.exception() is not None)]

    def connect(self, name: str) -> tuple[Process, Link, TaskQueue]:
        """A new process with a queue of its own."""
        process = Process(self.loop, name)
        link = Link(self.server, process, self.scenario.random(f"link {name}"))
        link.weather = BAD_LINE if name.startswith("person") else self.usual_weather
        self.links.append(link)
        queue = TaskQueue(
            self.config.with_(worker_id=name.split(".")[0]),
            registry=BODIES if self.scenario.has_limits else UNLIMITED_BODIES,
            timing=LoopTiming(self.loop),
        )
        queue._database = link
        process.queue = queue
        return process, link, queue

    def start_worker(self, number: int) -> None:
        """Start a worker in place of the last one of that number, unless the end has come."""
        if self._is_over:
            return
        number = self._of_workers(number)
        plan = self.scenario.workers[number]
        self._starts += 1
        process, link, queue = self.connect(f"w{number}.{self._starts}")

        async def work() -> None:
            settings = WorkerSettings(
                concurrency=plan.concurrency,
                prefetch=plan.prefetch,
                poll_interval_seconds=CONFIG.poll_interval_seconds,
                signals=False,
                grace_seconds=5.0,
            )
            worker = Worker(queue, settings)
            self.workers[number] = process, worker, link
            self.history.add(process, "worker starts")
            self._running[process] = worker
            await worker.run()
            self._running.pop(process, None)
            self.history.add(process, "worker stops")

        process.on_death.append(lambda: self._running.pop(process, None))
        process.on_death.append(lambda: self._revive_later(number))
        self._tasks.append(process.spawn(work()))

    def start_remote(self, number: int) -> None:
        """Start a worker that uses HTTP, in place of the last one of that number."""
        assert self.service is not None
        self._starts += 1
        process = Process(self.loop, f"h{number}.{self._starts}")
        concurrency = self.scenario.remote_workers[number]
        worker = HttpWorker(process, self.service, self.truth, concurrency=concurrency)
        self.remotes[number] = process, worker
        process.on_death.append(lambda: self._later(2.0, self._revive_remote, number))
        self._tasks.append(process.spawn(worker.run()))

    def _revive_remote(self, number: int) -> None:
        if not self._is_over:
            self.start_remote(number)

    def restart_service(self) -> None:
        """The HTTP service dies, and is started again."""
        if self.service is not None and self.service.process.is_alive:
            self.history.add(self.service.process, "*** killed")
            self.service.process.kill()
            self._later(1.0, self.service.start)

    def _later(self, seconds: float, call: Any, *args: Any) -> None:
        self.loop.call_in(seconds, call, *args, context=self.server.process.context)

    def _revive_later(self, number: int) -> None:
        """A service manager starts what has died."""
        self._later(2.0, self._revive, number)

    def _revive(self, number: int) -> None:
        if self.worker_process(number) is None:
            self.start_worker(number)

    async def _submit(self, number: int, submission: Submission) -> None:
        process, _, queue = self.connect(f"p{number}")
        self._unconfirmed += 1
        await process.spawn(self._submit_until_confirmed(queue, process, submission))
        self._unconfirmed -= 1

    async def _submit_until_confirmed(self, queue: TaskQueue, process: Process, submission: Submission) -> None:
        """As a careful producer does: under an id of its own, again and again until it is confirmed."""
        task_id: UUID = uuid_utils.compat.uuid7()
        while True:
            try:
                stored = await queue.aenqueue(submission.name, submission.arguments, id=task_id, **submission.options)
            except (DatabaseUnavailable, DatabaseBusy):
                await asyncio.sleep(0.5)
            except UniqueConflict:
                return
            else:
                self.history.add(process, f"submitted {submission.name} {str(stored)[-6:]} new={stored.created}")
                if stored.created:
                    self.truth.acknowledge(stored, submission.name)
                return

    async def _let_act(self, number: int, act: Act) -> None:
        process, _, queue = self.connect(f"person{number}")
        known = sorted(self.checker.rows), sorted(self.checker.removed)
        outcome = await process.spawn(people.act(queue, act, *known))
        self.history.add(process, f"{act.what}: {outcome}")
        if outcome in people.REFUSALS and self.checker.changed_by[process]:
            self.checker.broken(f"{process} did {act.what}, and was told {outcome}")

    async def _add_schedule(self, number: int, schedule: dict[str, Any]) -> None:
        process, _, queue = self.connect(f"planner{number}")

        async def add() -> None:
            while True:
                try:
                    await queue.aadd_schedule(**schedule)
                    return
                except (DatabaseUnavailable, DatabaseBusy):
                    await asyncio.sleep(0.5)

        await process.spawn(add())

    async def _let_emit(self, number: int, emission: Emission) -> None:
        process, _, queue = self.connect(f"teller{number}")  # the name seeds its link, and the corpus keeps it
        outcome = await process.spawn(self._emitters.emit(queue, emission))
        self.history.add(process, f"emits {emission.what} {emission.name}: {outcome}")

    async def _submit_flow(self, number: int, plan: FlowPlan) -> None:
        process, _, queue = self.connect(f"flow{number}")
        self._unconfirmed += 1
        await process.spawn(self._emitters.submit(queue, plan))
        self._unconfirmed -= 1

    async def _set_budget(self) -> None:
        process, _, queue = self.connect("treasurer")
        await process.spawn(self._emitters.budget(queue))

    async def _heal(self) -> None:
        """End all faults, and bring back what people and faults have taken away."""
        self.history.add("world", "all faults are over")
        self.usual_weather = CALM
        self.server.correct_clock()
        if self.server.is_away:
            self.server.come_back()
        for link in self.links:
            link.weather, link.is_cut = CALM, False
        for process in (*(link.process for link in self.links), *(process for process, _ in self.remotes.values())):
            if process.is_frozen and process.is_alive:
                process.resume()
        process, _, queue = self.connect("healer")
        await process.spawn(self._undo_people(queue))
        if self.scenario.has_workflows:
            self.checker.workflows.healed = self.loop.now
            helper, _, other = self.connect("helper")
            self._tasks.append(helper.spawn(self._emitters.emit_all(other)))
        for number in range(len(self.scenario.workers)):
            if self.worker_process(number) is None:
                self.start_worker(number)

    async def _undo_people(self, queue: TaskQueue) -> None:
        for name in (None, *people.NAMES):
            await queue.aresume(name)
        # What changes nothing notifies nobody: whose notification was lost must have found its work by itself.
        if await queue.aget_rate_limit():
            await queue.aset_rate_limit(0)
        for schedule in self.scenario.schedules:
            await queue.aremove_schedule(schedule["name"])

    def _of_workers(self, number: int) -> int:
        """The number of a worker there is: faults strike one, however few are left of a scenario."""
        return number % len(self.scenario.workers)

    def remote_process(self, number: int) -> Process | None:
        """The process of a worker that uses HTTP, if it lives."""
        found = self.remotes.get(number % max(1, len(self.remotes)))
        return None if found is None or not found[0].is_alive else found[0]

    def worker_process(self, number: int) -> tuple[Process, Link] | None:
        """The process of a worker, if it lives."""
        found = self.workers.get(self._of_workers(number))
        return None if found is None or not found[0].is_alive else (found[0], found[2])

    def stop_worker(self, number: int) -> None:
        """Ask a worker to stop in order."""
        process, worker, _ = self.workers[self._of_workers(number)]
        if process.is_alive:
            self.history.add(process, "*** asked to stop")
            process.context.copy().run(worker.stop)

    async def _settle(self) -> None:
        """Wait until nothing is left to do, or it has taken too long."""
        deadline = self.loop.now + SETTLE_SECONDS
        while not self.checker.violations:
            left = [row for row in self.checker.rows.values() if row.is_live]
            if not left and not self._unconfirmed:
                return
            if self.loop.now > deadline:
                for row in left:
                    self.checker.broken(f"{row.name} {row.id[-6:]} is still {row.phase} long after all faults")
                return
            await asyncio.sleep(1.0)

    async def _rest(self) -> None:
        """When nothing is to do, workers only look now and then, and those that died are forgotten."""
        self._is_over = True  # a deployment that is still to come would start a worker while they are counted
        if self.checker.violations:
            return
        before = {link: link.operations for link in self.links}
        await asyncio.sleep(QUIET_SECONDS)
        for link in self.links:
            count = link.operations - before.get(link, 0)
            if count > QUIET_SECONDS * MOST_OPERATIONS_A_SECOND * max(1, len(self.remotes)):
                self.checker.broken(f"{link.process} sent {count} operations in {QUIET_SECONDS:g} s without work")
        self.checker.check_registered(len(self._running))
        for schedule in self.scenario.schedules:
            if schedule["misfire"] == "all" and schedule["overlap"] == "allow":
                self.checker.check_ticks(schedule["name"], schedule["every"])
        process, _, queue = self.connect("reader")
        stats = await process.spawn(_awaited(queue.astats()))
        self.checker.check_counts(process, {state: getattr(stats, state) for state in STATES})

    async def _stop_all(self) -> None:
        for process, worker in list(self._running.items()):
            process.context.copy().run(worker.stop)
        for process, remote in self.remotes.values():
            remote.is_stopping = process.is_alive
        await asyncio.sleep(20.0)
        if not self.checker.violations:
            self.checker.check_registered(0)
            self.checker.check_end()

    def _at(self, moment: float, work: object) -> None:
        async def later() -> None:
            await asyncio.sleep(moment)
            await work  # type: ignore[misc]

        self._tasks.append(self.loop.create_task(later()))

    async def _until(self, moment: float) -> None:
        while self.loop.now - START < moment and not self.checker.violations:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
