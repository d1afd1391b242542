"""Storage against the model: whatever happens in whatever order, both say the same."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tasklib import InvalidTransition, ManualClock, TaskNotFound, UniqueConflict
from tasklib.core.lifecycle import TERMINAL, Ending, Event, phase_of
from tasklib.storage.rows import ClaimedTask
from tests.fixtures.queues import NOON, Face, Instance, open_queue
from tests.property.model import LEASE, TIMEOUT, Model, Row

NAMES = ("a", "b")
TABLES = ("tasks", "tasklib_workers", "tasklib_claims", "tasklib_controls")
SIZES = {"sqlite": (40, 50), "postgresql": (10, 40)}
"""Examples and steps of each; PostgreSQL answers ten times slower."""


class Wish(NamedTuple):
    """What somebody wants to submit."""

    name: str
    priority: int
    delay: float
    max_retries: int
    key: str | None
    on_conflict: str
    expires: int | None


names, actions = st.sampled_from(NAMES), st.sampled_from(["cancel", "retry", "delete"])
delays = st.sampled_from([0.0, 0.0, 5.0, 40.0])
wishes = st.builds(
    Wish,
    names,
    st.sampled_from([0, 0, 0, 1, -1]),
    delays,
    st.integers(0, 3),
    st.sampled_from([None, None, "k", "l"]),
    st.sampled_from(["return", "raise", "replace", "replace"]),
    st.sampled_from([None, None, None, 20]),
)
endings = st.sampled_from([Event.COMPLETE, Event.RETRY_LATER, Event.SNOOZE, Event.GIVE_UP, Event.RELEASE, Event.CANCEL])


@pytest.mark.backends("sqlite-memory", "postgres-newest")
def test_storage_does_what_the_model_does(database_url: str):
    examples, steps = SIZES[database_url.partition(":")[0]]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    with open_queue(database_url) as queue:
        run_machine(lambda: Storage(queue), settings=chosen)


class Storage(RuleBasedStateMachine):
    """Does everything twice: to a real queue and to the model."""

    tasks = Bundle("tasks")
    claims = Bundle("claims")
    workers = Bundle("workers")

    def __init__(self, queue: Face) -> None:
        super().__init__()
        self.queue = queue
        queue.plain.clock = ManualClock(NOON)
        for table in TABLES:
            queue.sql(f"DELETE FROM {table}")
        self.model = Model()
        self.instances: list[Instance] = []
        self.versions: dict[UUID, int] = {}
        self.given: set[int] = set()

    @initialize(target=workers)
    def start(self) -> Any:
        return multiple(self.register(), self.register())

    @initialize(target=tasks, some=st.lists(wishes, min_size=2, max_size=5))
    def fill(self, some: list[Wish]) -> Any:
        return multiple(*map(self.submit, some))

    @rule(target=tasks, some=st.lists(wishes, min_size=1, max_size=4))
    def submit_some(self, some: list[Wish]) -> Any:
        return multiple(*map(self.submit, some))

    @rule(target=claims, worker=workers, limit=st.integers(1, 5))
    def claim_everything(self, worker: Instance, limit: int) -> Any:
        return multiple(*self.claim(worker, limit, NAMES))

    @rule(target=claims, worker=workers, limit=st.integers(1, 2), name=names)
    def claim_of_one_name(self, worker: Instance, limit: int, name: str) -> Any:
        return multiple(*self.claim(worker, limit, (name,)))

    @rule(claim=claims, event=endings, delay=delays)
    def end(self, claim: tuple[Instance, ClaimedTask], event: Event, delay: float) -> None:
        """An attempt ends, perhaps one that was lost or has ended before."""
        worker, task = claim
        later = {"delay": delay} if event in (Event.RETRY_LATER, Event.SNOOZE) else {}
        error = {"error": "E: e"} if event in (Event.RETRY_LATER, Event.GIVE_UP) else {}
        accepted = self.model.end(UUID(task.id), task.version, event, later.get("delay"))
        if event is Event.COMPLETE:
            assert worker.complete(task) is accepted
        else:
            assert worker.end(getattr(Ending, event)(task.id, task.version, **later, **error)) is accepted

    @rule(claim=claims)
    def renew(self, claim: tuple[Instance, ClaimedTask]) -> None:
        worker, task = claim
        accepted = self.model.renew(UUID(task.id), task.version)
        assert worker.renew(task, lease=LEASE)[0] == (set() if accepted else {task.id})

    @rule(task_id=tasks, action=actions)
    def do_something(self, task_id: UUID, action: str) -> None:
        self.act(task_id, action)

    @rule(claim=claims)
    def ask_to_stop(self, claim: tuple[Instance, ClaimedTask]) -> None:
        self.act(UUID(claim[1].id), "cancel")

    @rule(task_id=tasks)
    def change_ones_mind(self, task_id: UUID) -> None:
        self.act(task_id, "cancel")
        self.act(task_id, "retry")

    @rule(seconds=st.sampled_from([1, 10, 25, 45]), thorough=st.sampled_from([None, False, True]))
    def go_on(self, seconds: int, thorough: bool | None) -> None:
        """Time passes while everybody is well."""
        self.advance(seconds, set(self.instances), thorough)

    @rule(worker=workers, thorough=st.booleans())
    def vanish(self, worker: Instance, thorough: bool) -> None:
        """One instance stops answering; the others go on and recover what it held."""
        self.advance(20, set(self.instances) - {worker}, None)
        self.advance(20, set(self.instances) - {worker}, thorough)

    @rule(worker=workers, thorough=st.booleans())
    def stay_silent_past_the_leases(self, worker: Instance, thorough: bool) -> None:
        """Everybody answers, but nobody renews a lease for long."""
        self.advance(LEASE + 0.5, set(self.instances), thorough)

    @rule(target=workers)
    def join(self) -> Instance:
        return self.register()

    @rule(worker=workers, thorough=st.booleans())
    def forget(self, worker: Instance, thorough: bool) -> None:
        """An instance is gone from the list, whatever it held."""
        self.model.beats.pop(worker.instance, None)
        worker.forget()
        self.advance(1, set(self.instances), thorough)

    @rule(name=st.sampled_from([None, *NAMES]), on=st.booleans())
    def pause_or_resume(self, name: str | None, on: bool) -> None:
        if on:
            self.queue.pause(name)
            self.model.paused.add(name)
        else:
            assert self.queue.resume(name) is (name in self.model.paused)
            self.model.paused.discard(name)

    @invariant()
    def every_task_stands_where_the_model_says(self) -> None:
        tasks = self.queue.list(limit=1000)
        assert [task.id for task in tasks] == [*reversed(self.model.rows)]
        for task in tasks:
            row = self.model.rows[task.id]
            due = None if row.due is None else NOON + timedelta(seconds=row.due)
            assert (phase_of(task), task.due_at) == (row.phase, due)
            assert task.state != "running" or task.version == row.version
            assert (task.attempts, task.retry_count, task.lost_count) == (row.attempts, row.retry_count, row.lost_count)
            assert (task.completed_at is not None) is (row.phase in TERMINAL)
            assert (task.locked_until is not None) is (task.worker_id is not None) is (task.state == "running")
            assert (task.cancel_requested_at is not None) is row.cancel_requested
            assert task.version >= self.versions.get(task.id, 0)
            self.versions[task.id] = task.version
        held = Counter((task.name, task.unique_key) for task in tasks if task.unique_key and task.completed_at is None)
        assert not held or max(held.values()) == 1

    @invariant()
    def counts_agree(self) -> None:
        stats = self.queue.stats()
        phases = Counter(row.phase.value for row in self.model.rows.values())
        assert stats.total == phases.total()
        assert stats.failed == phases["failed"] + phases["retrying"]
        for phase in ("pending", "running", "completed", "cancelled", "buried", "retrying"):
            assert getattr(stats, phase) == phases[phase]
        assert {info.instance for info in self.queue.workers()} == set(self.model.beats)

    def register(self) -> Instance:
        worker = self.queue.worker(*NAMES, timeout_seconds=TIMEOUT)
        self.model.beats[worker.instance] = self.model.now
        self.instances.append(worker)
        return worker

    def submit(self, wish: Wish) -> UUID:
        now = self.model.now
        expires = None if wish.expires is None else now + wish.expires
        new = Row(uuid4(), wish.name, wish.priority, now + wish.delay, wish.max_retries, wish.key, expires)
        expected = self.model.submit(new, wish.on_conflict)
        options: dict[str, Any] = {
            "id": new.id,
            "priority": wish.priority,
            "delay_seconds": wish.delay,
            "max_retries": wish.max_retries,
            "unique_key": wish.key,
            "on_conflict": wish.on_conflict,
            "expires_at": None if expires is None else NOON + timedelta(seconds=expires),
        }
        try:
            answer = self.queue.enqueue(wish.name, **options)
            assert (answer.id, answer.created) == expected
        except UniqueConflict:
            assert expected is None
        return new.id if expected is None else expected[0]

    def act(self, task_id: UUID, action: str) -> None:
        """A person acts on a task, perhaps one that is gone or does not allow it."""
        accepted = getattr(self.model, action)(task_id)
        try:
            getattr(self.queue, action)(task_id)
            assert accepted
        except (InvalidTransition, UniqueConflict, TaskNotFound):
            assert not accepted

    def claim(self, worker: Instance, limit: int, some: tuple[str, ...]) -> list[tuple[Instance, ClaimedTask]]:
        registered = worker.instance in self.model.beats
        expected = self.model.claim(worker.instance, some, limit)
        claimed = worker.claim(limit, some, LEASE)
        assert [UUID(task.id) for task in claimed.tasks] == expected
        assert claimed.registered is registered
        for task in claimed.tasks:
            assert task.version not in self.given
            self.given.add(task.version)
            self.model.rows[UUID(task.id)].version = task.version
        return [(worker, task) for task in claimed.tasks]

    def advance(self, seconds: float, beating: set[Instance], thorough: bool | None) -> None:
        """Move both clocks, let instances beat, and perhaps recover."""
        self.model.now += seconds
        self.queue.advance(seconds)
        for worker in self.instances:
            if worker in beating:
                known = worker.instance in self.model.beats
                assert worker.beat() is known
                if known:
                    self.model.beats[worker.instance] = self.model.now
        if thorough is not None:
            recover = self.queue.recover_stale_tasks if thorough else self.queue.recover
            assert recover() == self.model.recover(thorough=thorough)
