"""For the tests of a Django project: run what was enqueued, in the test's own thread, connection and transaction.

from tasklib.contrib.django.testing import run_tasks

class SignUp(TestCase):
    def test_welcome(self):
        self.client.post("/sign-up/", {"email": "ada@example.com"})
        assert len(run_tasks()) == 1
        assert mail.outbox[0].to == ["ada@example.com"]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from asgiref.sync import async_to_sync
from django.db import DatabaseError, connections, transaction

from tasklib.contrib.django.backend import (
    TasklibBackend,
    backend_of,
    define,
    definitions,
    find_tasks,
    read_many,
)
from tasklib.contrib.django.calls import DjangoDefinition, TaskName
from tasklib.contrib.django.database import DjangoDatabase
from tasklib.contrib.django.framework import signals
from tasklib.contrib.django.middleware import announce_ends
from tasklib.contrib.django.results import result_of
from tasklib.core.calls.base_exceptions import is_interrupt
from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import activate
from tasklib.core.codec import encode_result
from tasklib.core.lifecycle import EFFECTS, Ending
from tasklib.core.outcome import Completion, Raised, completed, decide
from tasklib.definition import Registry
from tasklib.storage.operations.attempts import complete_tasks, end_attempts
from tasklib.storage.operations.claims import Claim, Claimed, Retries, claim_tasks
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.tasks import waiting_names
from tasklib.storage.operations.workers import Registration, forget_worker, register_worker
from tasklib.storage.rows import ClaimedTask
from tasklib.storage.shared_migrate import prepare_claims_on
from tasklib.storage.statement import Operation, T

__all__ = ["run_tasks"]

MOST_TASKS = 10_000
"""A call that has run so many is taken for endless."""
WORKER = "run_tasks"


def run_tasks(
    *, backend: str = "default", queues: Sequence[str] = (), limit: int | None = None, advance: bool = False
) -> list[Any]:
    """Run what is due, and what that enqueues, and return the TaskResult of each task in the order in which they ran.

    It runs here: in this thread, on this connection, inside the transaction of a TestCase.  With `advance` delayed
    tasks and retries do not have to be waited for: the time they wait for is taken to have come.  Tasks are claimed,
    retried and ended by the rules and statements of a real worker; timeouts and isolation need one.

    Examples:
        >>> result = add.enqueue(1, 2)
        >>> [done.return_value for done in run_tasks()]
        [3]
    """
    return _Run(backend_of(backend), queues, advance).work(MOST_TASKS if limit is None else limit, limit is None)


class _Run:
    """One call of `run_tasks`."""

    def __init__(self, backend: TasklibBackend, queues: Sequence[str], advance: bool) -> None:
        self._backend = backend
        self._queues = queues
        self._advance = advance
        self._moved: datetime | None = None
        self._database = DjangoDatabase(backend.database_alias, clock=self)
        self._config = backend.config
        self._registry = Registry()
        self._instance = uuid4()
        self._ran: dict[str, None] = {}

    def now(self) -> datetime | None:
        """The time for our statements: the database's own, until it is moved."""
        return self._moved

    def work(self, limit: int, is_endless: bool) -> list[Any]:
        """Run tasks until nothing is due, or so many have run."""
        find_tasks()
        for definition in definitions(self._backend, self._queues or sorted(self._backend.queues) or ["default"]):
            self._registry.add(definition)
        prepare_claims_on(connections[self._database.alias])
        self._run(partial(register_worker, self._registration()))
        done = 0
        try:
            while done < limit and (claimed := self._claim()):
                for task in claimed:
                    self._attempt(task)
                    done += 1
        finally:
            self._run(partial(forget_worker, self._instance))
        if done >= limit and is_endless:
            raise AssertionError(f"still not done after {done:,} attempts; does a task enqueue itself again and again?")
        return [result_of(stored, self._backend, by) for stored, by in self._run(partial(read_many, list(self._ran)))]

    def _claim(self) -> list[ClaimedTask]:
        """The next task that is due, if there is one; with `advance`, the next at all."""
        self._learn()
        found: Claimed = self._run(partial(claim_tasks, self._wanted()))
        if found.tasks or not self._advance or found.next_due_in is None:
            return found.tasks
        now = self._moved or self._run(lambda: read_clock())
        self._moved = now + timedelta(seconds=found.next_due_in, milliseconds=1)
        return self._run(partial(claim_tasks, self._wanted())).tasks

    def _attempt(self, task: ClaimedTask) -> None:
        definition = self._registry.find(task.name)
        assert isinstance(definition, DjangoDefinition)
        self._ran[task.id] = None
        context = TaskContext(partial(task.task, WORKER), worker_id=WORKER)
        result = result_of(context.task, self._backend)
        signals.task_started.send_robust(type(self._backend), task_result=result)
        started = time.monotonic()
        try:
            value = self._call(definition, task, context)
            ended: Completion | Ending = completed(
                task,
                encode_result(value, limit=self._config.max_result_bytes),
                started,
                time.monotonic(),
                context.reported,
            )
        except BaseException as error:
            if is_interrupt(error):
                raise
            ended = decide(task, Raised(error), self._config.backoff, definition.options)
        self._record(ended)

    def _call(self, definition: DjangoDefinition, task: ClaimedTask, context: TaskContext) -> Any:
        args, kwargs = definition.call_with(task.kwargs, context)
        with _as_if_committed(), activate(context):
            if definition.options.transactional:
                return self._call_transactional(partial(definition.function, *args, **kwargs), context)
            if definition.is_async:
                return async_to_sync(definition.function)(*args, **kwargs)
            return definition.function(*args, **kwargs)

    def _call_transactional(self, call: Callable[[], Any], context: TaskContext) -> Any:
        with self._database.transaction() as shared:
            context.join(self._database, shared.connection)
            try:
                return call()
            finally:
                context.join(None, None)

    def _record(self, ended: Completion | Ending) -> None:
        if isinstance(ended, Completion):
            self._run(partial(complete_tasks, [ended]))
            announce_ends(self._backend, [ended.task_id])
            return
        self._run(partial(end_attempts, [ended]))
        if EFFECTS[ended.event].terminal:
            announce_ends(self._backend, [ended.task_id])

    def _learn(self) -> None:
        """Import tasks whose modules were not."""
        for name in map(TaskName.parse, self._run(lambda: waiting_names())):
            known = str(name) in self._registry
            served = name.queue in (self._queues or self._backend.queues or (name.queue,))
            if not known and served and (found := define(self._backend, name)) is not None:
                self._registry.add(found)

    def _run(self, make: Callable[[], Operation[T]]) -> T:
        return self._database.run(make)

    def _wanted(self) -> Claim:
        return Claim(
            instance=self._instance,
            worker_id=WORKER,
            names=self._registry.names(),
            limit=1,
            lease_seconds=self._config.lock_timeout_seconds,
            retries=Retries(self._registry.retries(), self._config.max_retries),
        )

    def _registration(self) -> Registration:
        return Registration(
            instance=self._instance,
            worker_id=WORKER,
            host="",
            pid=0,
            timeout_seconds=self._config.worker_timeout_seconds,
            concurrency=1,
            names=tuple(self._registry.names()),
        )


@contextmanager
def _as_if_committed() -> Generator[None]:
    """Around an attempt inside the transaction of a test, which is taken to be committed when it ends.

    As in a worker, where each statement is committed by itself, what was written before an exception stays; unless the
    database has refused a statement, after which nothing more could be done in the test's transaction.
    """
    inside = [each for each in connections.all(initialized_only=True) if each.in_atomic_block]
    before = {each.alias: len(each.run_on_commit) for each in inside}
    failure: BaseException | None = None
    try:
        with ExitStack() as blocks:
            for each in inside:
                block = transaction.atomic(using=each.alias)
                block._from_testcase = True  # noqa: SLF001  as around a test: a durable block may begin inside
                blocks.enter_context(block)
            try:
                yield
            except BaseException as error:  # noqa: BLE001  raised again below
                failure = error
                if isinstance(error, DatabaseError):
                    for each in inside:
                        each.set_rollback(True)
    except DatabaseError:
        if failure is None:
            raise
    if failure is not None:
        raise failure
    for each in inside:
        registered = each.run_on_commit[before[each.alias] :]
        del each.run_on_commit[before[each.alias] :]
        for _, callback, is_robust in registered:
            try:
                callback()
            except Exception:
                if not is_robust:
                    raise
