"""Steps: run once, remembered, run again only where they failed; and sleeps that hold no slot."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from tasklib import (
    Abort,
    AsyncTaskContext,
    StepFailed,
    StepKeyError,
    TaskContext,
    TaskId,
    TaskIds,
    TaskState,
    current_context,
)
from tasklib.errors import ContextError
from tasklib.worker.workflows import records
from tests.fixtures.queues import Face


@dataclasses.dataclass
class Payment:
    amount: int
    day: date


class Calls(list[Any]):
    """What happened, in order."""

    def note(self, what: Any) -> Any:
        self.append(what)
        return what


@pytest.fixture
def calls() -> Calls:
    return Calls()


def finish(queue: Face, task_id: Any) -> Any:
    """Run what is due, and move the clock on to what is due later, until the task has ended or waits without an end."""
    while True:
        queue.process_batch()
        task = queue.read(task_id)
        if task.completed_at is not None or task.due_at is None:
            return task
        if task.due_at > queue.now:
            queue.advance((task.due_at - queue.now).total_seconds())


def test_a_coroutine_runs_each_step_once_whatever_comes_between(queue: Face, calls: Calls):
    async def fetch(n: int) -> int:
        return calls.note(n)

    def double(n: int) -> int:
        return calls.note(2 * n)

    @queue.task
    async def workflow(ctx: AsyncTaskContext, n: int) -> int:
        first = await ctx.step(fetch, n)
        await ctx.sleep(3600)
        second = await ctx.step(double, first)
        await ctx.sleep(timedelta(days=1))
        return first + second

    task = finish(queue, workflow.submit(21))

    assert (task.state, task.result, list(calls)) == (TaskState.COMPLETED, {"value": 63}, [21, 42])


def test_a_plain_function_does_too(queue: Face, calls: Calls):
    @queue.task
    def workflow(ctx: TaskContext, n: int) -> list[int]:
        first = ctx.step(calls.note, n)
        ctx.sleep(3600)
        return [first, ctx.options(name="second").step(calls.note, n + 1)]

    task = finish(queue, workflow.submit(1))

    assert (task.result, list(calls)) == ({"value": [1, 2]}, [1, 2])


def test_ids_are_values_of_steps_and_arguments_and_stay_ids(queue: Face, calls: Calls):
    @queue.task
    def job(after: TaskId[int] | None = None) -> int:
        return calls.note(type(after)) is None

    def begin() -> TaskId[int]:
        return job.submit()

    def begin_many() -> TaskIds:
        return job.submit_many([{}, {}])

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> list[TaskId[int]]:
        first, others = await ctx.step(begin), await ctx.step(begin_many)
        await ctx.sleep(60)
        return [first, *others, job.submit(first)]

    task_id = workflow.submit()
    ids = finish(queue, task_id) and task_id.wait()

    assert {type(each) for each in ids} == {TaskId}
    assert set(ids) == {each.id for each in queue.list(name="job")}
    assert calls[-1] is TaskId or (queue.process_batch() and calls[-1] is TaskId)


def test_live_and_replayed_code_see_the_same_value_as_its_annotated_type(queue: Face, calls: Calls):
    def pay() -> Payment:
        return Payment(5, date(2030, 1, 2))

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        calls.note(await ctx.step(pay))
        await ctx.sleep(60)
        calls.note(await ctx.step(pay))

    finish(queue, workflow.submit())

    assert calls == [Payment(5, date(2030, 1, 2))] * 3


def test_a_sleeping_task_waits_without_a_slot_and_says_so(queue: Face):
    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.sleep(3600)

    task_id = workflow.options(expires_at=queue.now + timedelta(seconds=60)).submit()
    queue.process_batch()

    task = queue.read(task_id)
    assert (task.state, task.waits_for, task.attempts, task.expires_at) == (TaskState.PENDING, "sleep", 0, None)
    assert task.due_at == queue.now + timedelta(hours=1)
    assert (task.worker_id, task.locked_until) == (None, None)
    (reason,) = queue.explain(task_id).reasons
    assert reason.code == "waiting"
    assert "sleeps until 2030-01-01T13:00:00" in reason.text
    stats = queue.stats()
    counted = {state: count for state, count in stats.by_name["workflow"].items() if count}
    assert (stats.pending, stats.delayed, stats.waiting, counted) == (1, 0, 1, {"pending": 1, "waiting": 1})
    assert [found.id for found in queue.list(state="waiting")] == [task_id]
    assert (queue.count(state="waiting"), queue.count(state="delayed"), queue.count(state="pending")) == (1, 0, 1)


def test_a_waiting_task_leaves_its_concurrency_key_to_others(queue: Face, calls: Calls):
    @queue.task(concurrency_key="ada")
    async def nap(ctx: AsyncTaskContext, n: int) -> None:
        calls.note(n)
        await ctx.sleep(60)

    for n in range(3):
        nap.submit(n)
    for _ in range(3):
        queue.process_batch()
    assert calls == [0, 1, 2]
    assert queue.count(state="waiting") == 3


def test_a_run_has_only_so_many_steps(queue: Face, calls: Calls, monkeypatch: pytest.MonkeyPatch):
    from tasklib.worker.workflows import history

    monkeypatch.setattr(history, "MOST_STEPS", 3)

    @queue.task
    async def endless(ctx: AsyncTaskContext) -> None:
        while True:
            await ctx.step(calls.note, 1)

    task_id = endless.submit()
    queue.process_batch()
    task = queue.read(task_id)
    assert task.state is TaskState.FAILED
    assert "more than 3 steps in one run; raise task.restart" in (task.error or "")
    assert calls == [1, 1, 1]


def test_a_sleep_can_end_at_a_moment(queue: Face):
    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.sleep(until=ctx.task.created_at + timedelta(days=3))

    task_id = workflow.submit()
    queue.process_batch()

    assert queue.read(task_id).due_at == queue.now + timedelta(days=3)


def test_a_waiting_task_can_be_cancelled(queue: Face):
    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.sleep(3600)

    task_id = workflow.submit()
    queue.process_batch()
    queue.cancel(task_id)

    assert (queue.read(task_id).state, queue.read(task_id).waits_for) == (TaskState.CANCELLED, None)


def test_steps_of_one_name_are_told_apart_by_their_order(queue: Face, calls: Calls):
    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> list[int]:
        found = await asyncio.gather(*[ctx.step(calls.note, n) for n in range(3)])
        await ctx.sleep(60)
        return list(found)

    task = finish(queue, workflow.submit())

    assert (task.result, sorted(calls)) == ({"value": [0, 1, 2]}, [0, 1, 2])


def test_the_same_name_from_two_asyncio_tasks_needs_keys(queue: Face, calls: Calls):
    @queue.task(max_retries=0)
    async def without(ctx: AsyncTaskContext) -> None:
        async def branch(n: int) -> None:
            await ctx.step(calls.note, n)

        await asyncio.gather(branch(1), branch(2))

    @queue.task(max_retries=0)
    async def with_keys(ctx: AsyncTaskContext) -> int:
        async def branch(n: int) -> int:
            return await ctx.options(key=str(n)).step(calls.note, n)

        return sum(await asyncio.gather(branch(3), branch(4)))

    first, second = finish(queue, without.submit()), finish(queue, with_keys.submit())

    assert first.state is TaskState.FAILED
    assert "StepKeyError" in (first.error or "")
    assert second.result == {"value": 7}


def test_the_same_name_from_two_threads_needs_keys(queue: Face, calls: Calls):
    errors: list[Exception] = []

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> None:
        def branch(n: int) -> None:
            try:
                ctx.step(calls.note, n)
            except StepKeyError as error:
                errors.append(error)

        for n in range(2):
            thread = threading.Thread(target=branch, args=(n,))
            thread.start()
            thread.join()

    finish(queue, workflow.submit())

    assert len(errors) == 1


def test_a_key_is_used_once(queue: Face, calls: Calls):
    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        for _ in range(2):
            await ctx.options(key="same").step(calls.note, 1)

    assert "used twice" in (finish(queue, workflow.submit()).error or "")


@pytest.mark.parametrize(
    "first, second", [({"name": "x:y"}, {"name": "x", "key": "y"}), ({"name": "note#2"}, {"name": "note"})], ids=str
)
def test_a_name_that_looks_like_the_key_of_another_step_is_refused(queue: Face, calls: Calls, first: Any, second: Any):
    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        for options in (first, second, {**second, "key": None}):
            await ctx.options(**options).step(calls.note, 1)

    assert "StepKeyError" in (finish(queue, workflow.submit()).error or "")


def test_the_call_of_a_function_is_no_step(queue: Face):
    async def work() -> None: ...

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.step(work())  # type: ignore[arg-type]

    assert "pass the function itself" in (finish(queue, workflow.submit()).error or "")


def wrong_calls(ctx: Any, child: Any) -> dict[str, Any]:
    return {
        "did you mean timeout_seconds=?; call it as ctx.wait(event, type=": lambda: ctx.wait("paid", timeout=None),
        "missing a required argument: 'event'": lambda: ctx.wait(timeout_seconds=3),
        "with the task's own arguments in its bind: ctx.run(task.bind(1))": lambda: ctx.run(child, 3),
        "ctx.options: got an unexpected keyword argument 'retrys'; did you mean retries=?": lambda: ctx.options(
            retrys=3
        ),
        "ctx.map takes mappings of arguments, one for each child, got 5": lambda: ctx.map(child, 5),
    }


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_wrong_call_of_the_context_says_how_to_write_it(queue: Face, kind: str):
    @queue.task
    def child(number: int) -> None: ...

    def blocking(ctx: TaskContext, message: str) -> None:
        wrong_calls(ctx, child)[message]()

    async def awaiting(ctx: AsyncTaskContext, message: str) -> None:
        await wrong_calls(ctx, child)[message]()

    workflow = queue.task(max_retries=0, name="workflow")(blocking if kind == "def" else awaiting)
    for message in wrong_calls(None, None):
        assert message in (finish(queue, workflow.submit(message)).error or "")


def test_a_failed_step_runs_again_with_the_tasks_retry_and_the_others_do_not(queue: Face, calls: Calls):
    def shaky() -> str:
        if calls.note("shaky") and calls.count("shaky") < 3:
            raise ValueError("not yet")
        return "at last"

    @queue.task(max_retries=5)
    async def workflow(ctx: AsyncTaskContext) -> str:
        await ctx.step(calls.note, "before")
        return await ctx.step(shaky)

    task = finish(queue, workflow.submit())

    assert task.result == {"value": "at last"}
    assert calls == ["before", "shaky", "shaky", "shaky"]
    assert [attempt.outcome for attempt in task.history] == ["failed", "failed", "completed"]


def test_a_handled_failure_stays(queue: Face, calls: Calls):
    def broken() -> None:
        calls.note("broken")
        raise OSError("gone")

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> list[str]:
        try:
            await ctx.step(broken)
        except StepFailed as error:
            seen = [error.key, error.type, error.message]
        await ctx.sleep(60)
        return seen

    task = finish(queue, workflow.submit())

    assert (task.result, list(calls)) == ({"value": ["broken", "OSError", "gone"]}, ["broken"])


def test_a_person_resumes_at_the_failed_step(queue: Face, calls: Calls):
    def charge() -> str:
        if calls.note("charge") and calls.count("charge") == 1:
            raise ConnectionError("no bank")
        return "paid"

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> str:
        ctx.step(calls.note, "reserve")
        return ctx.step(charge)

    task_id = workflow.submit()
    assert finish(queue, task_id).state is TaskState.FAILED
    queue.retry(task_id)

    assert finish(queue, task_id).result == {"value": "paid"}
    assert calls == ["reserve", "charge", "charge"]


def test_a_step_is_retried_in_place_and_then_without_a_slot(queue: Face, calls: Calls):
    def shaky() -> int:
        if len(calls) < 2:
            calls.note(1)
            raise ValueError("no")
        return len(calls)

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> int:
        first = await ctx.options(retries=1, delay_seconds=0).step(calls.note, 0)
        return first + await ctx.options(retries=2, delay_seconds=60, name="slow").step(shaky)

    task_id = workflow.submit()
    queue.process_batch()

    assert queue.read(task_id).waits_for == "retry slow"
    assert "tried again" in str(queue.explain(task_id))
    assert finish(queue, task_id).result == {"value": 2}


def test_a_newly_recorded_step_starts_the_retries_anew(queue: Face, calls: Calls):
    """Three steps that each fail once, with one retry in all."""

    def once(name: str) -> str:
        if calls.note(name) and calls.count(name) == 1:
            raise ValueError(name)
        return name

    @queue.task(max_retries=1)
    async def workflow(ctx: AsyncTaskContext) -> str:
        return "".join([await ctx.options(key=name).step(once, name) for name in "abc"])

    task = finish(queue, workflow.submit())

    assert (task.result, task.retry_count) == ({"value": "abc"}, 0)


def test_a_step_past_its_timeout_has_failed(queue: Face):
    never = threading.Event()

    async def slow() -> None:
        await asyncio.Event().wait()

    @queue.task(max_retries=0)
    async def awaiting(ctx: AsyncTaskContext) -> None:
        await ctx.options(timeout_seconds=0.01).step(slow)

    @queue.task(max_retries=0)
    def blocking(ctx: TaskContext) -> None:
        ctx.options(timeout_seconds=0.01, name="never").step(never.wait)

    for task in (awaiting, blocking):
        assert "TaskTimeout" in (finish(queue, task.submit()).error or "")
    never.set()


def test_a_step_can_limit_what_it_awaits(queue: Face):
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "enough"
        return "never"

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> list[str]:
        return [await ctx.step(impatient), await ctx.options(transactional=True).step(impatient)]

    assert finish(queue, workflow.submit()).result == {"value": ["enough", "enough"]}


def test_a_value_that_cannot_be_recorded_is_final(queue: Face, calls: Calls):
    @queue.task(max_retries=3)
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.step(lambda: calls.note(object()))

    task = finish(queue, workflow.submit())

    assert (task.state, len(calls)) == (TaskState.FAILED, 1)
    assert "ResultError" in (task.error or "")


def test_a_step_can_abort_the_task(queue: Face):
    def stop() -> None:
        raise Abort("enough")

    @queue.task(max_retries=3)
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.options(retries=3).step(stop)

    task = finish(queue, workflow.submit())

    assert (task.state, task.attempts) == (TaskState.FAILED, 1)
    assert "enough" in (task.error or "")


def test_steps_do_not_nest_and_know_their_key(queue: Face, calls: Calls):
    def inner(ctx: TaskContext) -> None:
        calls.note(current_context().step_key)
        try:
            ctx.step(calls.note, 1)
        except ContextError as error:
            calls.note(str(error))

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> None:
        ctx.options(key="k").step(lambda: inner(ctx))
        ctx.options(name="outer").step(lambda: inner(ctx))

    finish(queue, workflow.submit())

    assert (calls[0], calls[2]) == ("<lambda>:k", "outer")
    assert "inside another step" in calls[1]


def test_a_transactional_task_records_no_steps(queue: Face, calls: Calls):
    @queue.task(max_retries=0, transactional=True)
    def workflow(ctx: TaskContext) -> None:
        ctx.step(calls.note, 1)

    assert "transactional as a whole" in (finish(queue, workflow.submit()).error or "")


def test_a_transactional_steps_writes_and_its_record_are_one_commit(queue: Face, calls: Calls):
    """The first attempt's writes are undone with the step; the second's are there once."""
    schema = "main" if queue.is_sqlite else queue.sql("SELECT current_schema AS name")[0]["name"]
    queue.sql("CREATE TABLE ledger (entry text)")

    def book(entry: str) -> str:
        connection = current_context().connection
        connection.execute(f"INSERT INTO {schema}.ledger VALUES ('{entry}')")
        if calls.note(entry) and len(calls) == 1:
            raise ValueError("the bank says no")
        return entry

    @queue.task(max_retries=1)
    def workflow(ctx: TaskContext) -> str:
        done = ctx.options(transactional=True).step(book, "debit")
        ctx.sleep(60)
        return done

    task = finish(queue, workflow.submit())

    assert (task.result, list(calls)) == ({"value": "debit"}, ["debit", "debit"])
    assert [row["entry"] for row in queue.sql("SELECT entry FROM ledger")] == ["debit"]
    queue.sql("DROP TABLE ledger")


def test_whatever_the_function_makes_of_a_wait_is_ignored(queue: Face, calls: Calls):
    @queue.task(max_retries=0)
    async def swallows(ctx: AsyncTaskContext) -> str:
        try:
            await ctx.sleep(60)
        except BaseException:  # noqa: BLE001
            return "swallowed"
        return calls.note("slept")

    @queue.task(max_retries=0)
    async def groups(ctx: AsyncTaskContext) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.options(key="a").sleep(60))
            group.create_task(ctx.options(key="b").sleep(120))
        return calls.note("both")

    @queue.task(max_retries=0)
    async def tidies(ctx: AsyncTaskContext) -> str:
        try:
            await ctx.sleep(60)
            return calls.note("woke")
        finally:
            await asyncio.sleep(0)
            with suppress(BaseException):
                await ctx.sleep(60)

    for task, waits in ((swallows, 1), (groups, 2), (tidies, 2)):
        task_id = task.submit()
        for _ in range(waits):
            queue.process_batch()
            assert queue.read(task_id).waits_for == "sleep"
            queue.advance(60)
        queue.process_batch()
        assert queue.read(task_id).state is TaskState.COMPLETED
    assert calls == ["slept", "both", "woke", "woke"]


def test_a_wait_whose_end_nobody_looks_at_logs_nothing(queue: Face, caplog: pytest.LogCaptureFixture):
    @queue.task
    async def abandoning(ctx: AsyncTaskContext) -> None:
        await asyncio.wait({asyncio.ensure_future(ctx.sleep(3600))})

    task_id = abandoning.submit()
    queue.process_batch()
    gc.collect()

    assert queue.read(task_id).waits_for == "sleep"
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_a_branch_that_goes_on_is_not_cut_off_by_one_that_waits(queue: Face, calls: Calls):
    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        async def busy() -> None:
            for n in range(5):
                await ctx.step(calls.note, n)

        await asyncio.gather(ctx.sleep(60), busy())

    task_id = workflow.submit()
    queue.process_batch()

    assert (list(calls), queue.read(task_id).waits_for) == ([0, 1, 2, 3, 4], "sleep")


def test_code_that_asks_for_another_kind_of_step_parks_the_task(queue: Face, calls: Calls):
    changed = []

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> str:
        if changed == ["kind"]:
            await ctx.options(name="first").sleep(60)
        else:
            await ctx.options(name="first").step(calls.note, 1)
        await ctx.sleep(60)
        return "done"

    task_id = workflow.submit()
    queue.process_batch()
    changed.append("kind")
    queue.advance(60)
    queue.process_batch()

    task = queue.read(task_id)
    assert (task.state, task.due_at, task.completed_at) == (TaskState.PENDING, None, None)
    assert "NonDeterminism" in (task.error or "")
    assert "recorded as a step" in (task.error or "")
    assert queue.explain(task_id).reasons[0].code == "parked"
    assert queue.process_batch() == 0

    changed.clear()
    queue.retry(task_id)
    assert finish(queue, task_id).result == {"value": "done"}
    assert calls == [1]


def test_a_repeated_step_with_other_arguments_parks_the_task(queue: Face, calls: Calls):
    given = [1, 2]

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        for n in given:
            await ctx.step(calls.note, n)
        await ctx.sleep(60)

    task_id = workflow.submit()
    queue.process_batch()
    given[:] = [2, 1]
    queue.advance(60)
    queue.process_batch()

    assert (queue.read(task_id).waits_for or "").startswith("code ")
    assert calls == [1, 2]


def test_other_arguments_under_a_unique_name_give_the_recorded_value(queue: Face, calls: Calls):
    given = [1]

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> int:
        found = await ctx.step(calls.note, given[0])
        await ctx.sleep(60)
        return found

    task_id = workflow.submit()
    queue.process_batch()
    given[:] = [2]

    assert finish(queue, task_id).result == {"value": 1}


def test_steps_may_be_added_removed_and_moved(queue: Face, calls: Calls):
    order = ["a", "b"]

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> list[str]:
        found = [await ctx.options(name=name).step(calls.note, name) for name in order]
        await ctx.sleep(60)
        return found

    task_id = workflow.submit()
    queue.process_batch()
    order[:] = ["c", "b"]

    assert finish(queue, task_id).result == {"value": ["c", "b"]}
    assert calls == ["a", "b", "c"]


def test_arguments_that_new_code_refuses_park_a_task_that_has_steps(queue: Face, calls: Calls):
    @queue.task(name="job", max_retries=0)
    async def old(ctx: AsyncTaskContext, n: int) -> None:
        await ctx.step(calls.note, n)
        await ctx.sleep(60)

    begun, not_begun = old.submit(1), old.options(delay_seconds=60).submit(2)
    queue.process_batch()
    queue.registry.remove("job")

    @queue.task(name="job", max_retries=0)
    async def new(ctx: AsyncTaskContext, n: int, day: date) -> None:
        await ctx.step(calls.note, n)

    queue.advance(60)
    queue.process_batch()

    assert (queue.read(begun).waits_for or "").startswith("code ")
    assert queue.read(not_begun).state is TaskState.FAILED
    assert calls == [1]


@pytest.mark.parametrize("name", ["workflow", "former"])
def test_a_worker_with_other_code_wakes_what_is_parked(queue: Face, name: str):
    @queue.task(max_retries=0, aliases=("former",))
    async def workflow(ctx: AsyncTaskContext) -> str:
        return "ran"

    task_id = queue.enqueue(name)
    queue.sql(f"UPDATE tasks SET waits_for = 'code other', marks = 4 WHERE id = '{task_id}'")

    assert finish(queue, task_id).result == {"value": "ran"}


def test_deleting_a_task_takes_its_steps_along(queue: Face, calls: Calls):
    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.step(calls.note, 1)

    task_id = workflow.submit()
    finish(queue, task_id)
    assert [row["key"] for row in queue.sql("SELECT key FROM tasklib_steps")] == ["note"]
    queue.delete(task_id)

    assert queue.sql("SELECT key FROM tasklib_steps") == []


def test_a_late_attempt_records_nothing(queue: Face, calls: Calls):
    """The task is taken away in the middle of the step, as when its worker was paused for too long."""

    def stolen(task_id: str) -> int:
        queue.plain.database.run(lambda: _steal(task_id))
        return calls.note(1)

    def _steal(task_id: str) -> Any:
        from tasklib.core.lifecycle import Ending
        from tasklib.storage.operations.attempts import end_attempts

        version = queue.plain.get(task_id).version  # type: ignore[union-attr]
        yield from end_attempts([Ending.release(task_id, version)])

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> int:
        if calls:
            return 0
        return ctx.step(stolen, str(ctx.task.id))

    task_id = workflow.submit()
    queue.process_batch()

    assert queue.sql("SELECT key FROM tasklib_steps") == []
    assert finish(queue, task_id).result == {"value": 0}


def test_a_workflow_that_has_begun_is_not_replaced(queue: Face):
    from tasklib import UniqueConflict

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.sleep(60)

    workflow.options(unique_key="one").submit()
    queue.process_batch()

    with pytest.raises(UniqueConflict, match="workflow that has begun"):
        workflow.options(unique_key="one", on_conflict="replace").submit()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [ValueError("a\0b"), ValueError("a\ud800b"), Mute()], ids=["nul", "half", "mute"])
def test_a_step_whose_error_no_database_keeps_fails_alone(queue: Face, error: Exception):
    def odd() -> None:
        raise error

    def plain_one(n: int) -> int:
        return n

    @queue.task(max_retries=0)
    async def failing(ctx: AsyncTaskContext) -> None:
        await ctx.step(odd)

    @queue.task(max_retries=0)
    async def beside(ctx: AsyncTaskContext, n: int) -> int:
        return await ctx.step(plain_one, n)

    others = [beside.submit(n) for n in range(5)]
    failed = failing.submit()
    others += [beside.submit(n) for n in range(5)]
    queue.process_batch()

    assert "StepFailed: step 'odd' failed" in (queue.read(failed).error or "")
    assert {queue.read(each).state for each in others} == {TaskState.COMPLETED}


@pytest.mark.parametrize("text", ["a\0", "a\ud800", ""], ids=ascii)
def test_names_and_keys_that_no_database_keeps_are_refused(queue: Face, text: str):
    def nothing() -> None: ...

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext, what: str) -> None:
        await ctx.options(**{what: text}).step(nothing)

    for what in ("name", "key"):
        assert f"the {what} of a step is a text" in (finish(queue, workflow.submit(what)).error or "")


def test_a_secret_is_not_recorded_as_a_mask(queue: Face):
    def log_in() -> SecretStr:
        return SecretStr("token")

    def stars() -> str:
        return "**********"

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> str:
        assert await ctx.step(stars) == "**********"
        return (await ctx.step(log_in)).get_secret_value()

    task = finish(queue, workflow.submit())
    assert (task.state, task.retry_count) == (TaskState.FAILED, 0)
    assert "step 'log_in' returned a secret of Pydantic's" in (task.error or "")


@pytest.mark.parametrize("call", ["step", "sleep", "wait", "spend", "run"])
def test_a_call_that_was_never_awaited_is_no_success(queue: Face, calls: Calls, call: str):
    given: dict[str, Any] = {"step": calls.note, "sleep": 60, "wait": "event", "spend": "budget"}

    @queue.task
    async def child() -> None: ...

    @queue.task
    async def forgetful(ctx: AsyncTaskContext) -> str:
        getattr(ctx, call)(child.bind() if call == "run" else given[call])
        return "done"

    task = finish(queue, forgetful.submit())
    assert (task.state, task.attempts, task.result) == (TaskState.FAILED, 1, None)
    assert f"write `await ctx.{call}(...)`" in task.error
    assert "StopIteration" not in task.error


def test_a_step_that_was_cancelled_before_it_began_is_not_a_forgotten_one(queue: Face, calls: Calls):
    @queue.task
    async def picky(ctx: AsyncTaskContext) -> str:
        asyncio.ensure_future(ctx.step(calls.note, 1)).cancel()
        await asyncio.sleep(0)
        return "done"

    assert (finish(queue, picky.submit()).state, calls) == (TaskState.COMPLETED, [])


def test_the_type_of_a_step_is_compiled_once_however_often_it_runs(queue: Face, monkeypatch: pytest.MonkeyPatch):
    """To compile it takes longer than to record a step."""
    compiled: list[Any] = []
    compile_type = records.compile_type
    monkeypatch.setattr(
        records, "compile_type", lambda what, kind: (compiled.append(kind), compile_type(what, kind))[1]
    )

    def pay(amount: int) -> Payment:
        return Payment(amount, date(2030, 1, 1))

    @queue.task
    def paying(ctx: TaskContext) -> int:
        return sum(ctx.step(pay, amount).amount for amount in range(5))

    task_id = paying.submit()
    queue.process_batch()
    assert queue.read(task_id).result == {"value": 10}
    assert len(compiled) <= 1


def test_steps_after_the_first_leave_the_tasks_own_row_as_it_is(queue: Face, calls: Calls):
    """They cost less so; the row says already that the task has steps and no retries."""
    if queue.is_sqlite:
        pytest.skip("SQLite has one statement for all steps")

    def version() -> Any:
        return calls.note(queue.sql("SELECT xmin::text AS written FROM tasks WHERE state = 'running'"))

    @queue.task
    def stepping(ctx: TaskContext) -> None:
        for _ in range(4):
            ctx.step(version)

    stepping.submit()
    queue.process_batch()
    claimed, first, *others = calls
    assert claimed != first
    assert others == [first, first]
