"""Events: facts, messages and questions; none is lost, whoever comes first."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from tasklib import AsyncTaskContext, TaskContext, TaskNotFound, TaskState, WaitTimeout
from tasklib.errors import ConfigurationError, InvalidPayload, InvalidTransition
from tasklib.storage.operations.workflows import events
from tasklib.storage.operations.workflows.events import open_wait, take_event
from tasklib.storage.statement import COMMIT, Operation, Statement
from tests.contract.test_steps import finish
from tests.fixtures.queues import Face


@dataclasses.dataclass
class Shipment:
    tracking: str


@dataclasses.dataclass
class Verdict:
    ok: bool
    why: str = ""


@pytest.fixture
def shipping(queue: Face) -> Any:
    @queue.task
    async def shipping(ctx: AsyncTaskContext, order: int) -> str:
        sent = await ctx.wait(f"shipped:{order}", Shipment)
        return sent.tracking

    return shipping


def test_a_fact_told_after_the_wait_wakes_the_task(queue: Face, shipping: Any):
    task_id = shipping.submit(42)
    queue.process_batch()

    task = queue.read(task_id)
    assert (task.state, task.waits_for, task.due_at) == (TaskState.PENDING, "event shipped:42", None)
    assert "waiting for event shipped:42 since" in str(queue.explain(task_id))
    assert queue.count(state="waiting") == 1

    assert queue.emit("shipped:42", {"tracking": "XY"})
    assert queue.read(task_id).due_at is not None
    assert finish(queue, task_id).result == {"value": "XY"}


def test_a_fact_told_before_the_wait_is_found(queue: Face, shipping: Any):
    queue.emit("shipped:1", {"tracking": "early"})

    assert finish(queue, shipping.submit(1)).result == {"value": "early"}


def test_the_first_fact_of_a_name_counts_until_it_is_withdrawn(queue: Face, shipping: Any):
    assert queue.emit("shipped:1", {"tracking": "first"})
    assert not queue.emit("shipped:1", {"tracking": "second"})
    assert finish(queue, shipping.submit(1)).result == {"value": "first"}

    assert queue.emit("shipped:1", withdraw=True)
    assert not queue.emit("shipped:1", withdraw=True)
    assert queue.emit("shipped:1", {"tracking": "third"})
    assert finish(queue, shipping.submit(1)).result == {"value": "third"}


def test_one_fact_wakes_everybody_who_waits(queue: Face, shipping: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "CHUNK", 2)
    ids = [shipping.submit(7) for _ in range(5)]
    queue.process_batch()
    queue.emit("shipped:7", {"tracking": "all"})
    queue.process_batch()

    assert [queue.read(task_id).result for task_id in ids] == [{"value": "all"}] * 5


def test_messages_are_taken_once_each_in_order(queue: Face):
    @queue.task
    async def listener(ctx: AsyncTaskContext) -> list[int]:
        return [await ctx.wait("number", int) for _ in range(3)]

    one, other = listener.submit(), listener.submit()
    queue.emit("number", 1, to=one)
    queue.emit("number", 2, to=one)
    queue.process_batch()
    assert queue.read(one).waits_for == "event number"
    queue.emit("number", 3, to=one)
    for n in (7, 8, 9):
        queue.emit("number", n, to=other)

    assert finish(queue, one).result == {"value": [1, 2, 3]}
    assert finish(queue, other).result == {"value": [7, 8, 9]}


def test_a_message_comes_before_a_fact(queue: Face, shipping: Any):
    task_id = shipping.submit(5)
    queue.emit("shipped:5", {"tracking": "fact"})
    queue.emit("shipped:5", {"tracking": "message"}, to=task_id)

    assert finish(queue, task_id).result == {"value": "message"}


def test_the_first_of_several_events_ends_the_wait(queue: Face):
    @queue.task
    def either(ctx: TaskContext) -> str:
        return ctx.wait(("paid", "refused"), str)

    task_id = either.submit()
    queue.process_batch()
    assert queue.read(task_id).waits_for == "event paid | refused"
    queue.emit("refused", "no")

    assert finish(queue, task_id).result == {"value": "no"}


def test_a_wait_gives_up_after_its_time(queue: Face):
    @queue.task(max_retries=3)
    async def patient(ctx: AsyncTaskContext, catch: bool) -> str:
        try:
            return await ctx.wait("never", str, timeout_seconds=60)
        except WaitTimeout:
            if not catch:
                raise
            return "gave up"

    caught, final = patient.submit(True), patient.submit(False)
    queue.process_batch()
    assert "gives up in 60 s" in str(queue.explain(caught))

    assert finish(queue, caught).result == {"value": "gave up"}
    ended = finish(queue, final)
    assert (ended.state, ended.retry_count) == (TaskState.FAILED, 0)
    assert "WaitTimeout" in (ended.error or "")
    queue.emit("never", "too late")
    assert queue.read(caught).result == {"value": "gave up"}


def test_a_wait_that_was_given_up_begins_anew_when_its_task_is_retried(queue: Face):
    @queue.task
    async def patient(ctx: AsyncTaskContext) -> str:
        return await ctx.wait("late", str, timeout_seconds=60)

    told, never = patient.submit(), patient.submit()
    queue.process_batch()
    for task_id in (told, never):
        assert finish(queue, task_id).state is TaskState.FAILED
    queue.retry(told)
    queue.process_batch()
    assert "gives up in 60 s" in str(queue.explain(told))

    queue.emit("late", "at last")
    assert finish(queue, told).result == {"value": "at last"}
    queue.emit("late", withdraw=True)
    queue.retry(never)
    assert "WaitTimeout" in (finish(queue, never).error or "")


def test_an_event_that_comes_with_the_timeout_wins(queue: Face):
    @queue.task(max_retries=0)
    async def patient(ctx: AsyncTaskContext) -> str:
        return await ctx.wait("just:in:time", str, timeout_seconds=60)

    task_id = patient.submit()
    queue.process_batch()
    queue.advance(61)
    queue.sql("INSERT INTO tasklib_events (name, payload) VALUES ('just:in:time', '\"here\"')")
    queue.process_batch()

    assert queue.read(task_id).result == {"value": "here"}


def test_an_event_told_by_sql_is_delivered_by_a_worker(queue: Face, shipping: Any):
    task_id = shipping.submit(3)
    queue.process_batch()
    queue.sql("INSERT INTO tasklib_events (name, payload) VALUES ('shipped:3', '{\"tracking\": \"sql\"}')")

    assert queue.do(events.deliver_new) == 1
    assert queue.do(events.deliver_new) == 0
    assert finish(queue, task_id).result == {"value": "sql"}


def test_an_event_told_by_sql_is_delivered_by_a_batch(queue: Face, shipping: Any):
    """Also where nobody has a worker that goes on, as with a cron job, and of an emitter that died half-way."""
    task_id = shipping.submit(4)
    queue.process_batch()
    queue.sql("INSERT INTO tasklib_events (name, payload) VALUES ('shipped:4', '{\"tracking\": \"sql\"}')")

    queue.process_batch()

    assert queue.read(task_id).result == {"value": "sql"}


def test_an_event_that_comes_between_the_look_and_the_suspension_is_not_lost(
    queue: Face, shipping: Any, monkeypatch: pytest.MonkeyPatch
):
    """It is told after the wait has looked, while the function unwinds: the suspension finds the step filled."""
    from tasklib.worker.workflows.engine import Engine

    suspend = Engine.suspend

    def late(self: Engine, parked: Any) -> None:
        suspend(self, parked)
        queue.plain.emit("shipped:9", {"tracking": "between"})

    monkeypatch.setattr(Engine, "suspend", late)
    task_id = shipping.submit(9)
    queue.process_batch()

    assert queue.read(task_id).waits_for is None
    monkeypatch.undo()
    assert finish(queue, task_id).result == {"value": "between"}


def test_a_wait_that_is_sent_again_after_a_lost_reply_keeps_what_has_filled_it(queue: Face, shipping: Any):
    task_id = shipping.submit(7)
    claimed = queue.worker("shipping").take()
    step = {"key": "wait", "number": 1, "kind": "wait", "state": "open", "tries": 0, "started_ago": 0}
    queue.do(lambda: open_wait(claimed.id, claimed.version, step, ["paid"]))
    for payload in ("first", "second"):
        queue.plain.emit("paid", payload, to=task_id)
    queue.do(lambda: open_wait(claimed.id, claimed.version, step, ["paid"]))

    assert queue.do(lambda: take_event(claimed.id, claimed.version, "wait", ["paid"]))["value"] == "first"
    assert queue.sql("SELECT * FROM tasklib_waits") == []
    assert queue.sql("SELECT taken_by FROM tasklib_events ORDER BY id") == [{"taken_by": "wait"}, {"taken_by": None}]


def test_a_question_is_answered_by_the_key_that_the_function_gave(queue: Face):
    @queue.task
    def pay(ctx: TaskContext) -> list[bool]:
        return [
            ctx.options(key="7").wait("approval", bool, ask="Pay?"),
            ctx.options(key="7").wait("second look", bool, ask="Really?"),
        ]

    task_id = pay.submit()
    queue.process_batch()
    queue.answer(task_id, "7", True)
    queue.process_batch()
    with pytest.raises(ConfigurationError, match="asks no question '7'"):
        queue.answer(task_id, "7", True)  # two questions have this key now
    queue.answer(task_id, "second look:7", False)
    queue.process_batch()

    assert queue.read(task_id).result == {"value": [True, False]}


def test_a_program_sees_what_a_workflow_has_recorded_and_asks(queue: Face):
    @queue.task
    async def careful(ctx: AsyncTaskContext) -> str:
        size = await ctx.step(len, "abc")
        return await ctx.options(key="rm").wait("approval", str, ask=f"Remove {size}?")

    task_id = careful.submit()
    assert queue.steps(task_id) == []
    queue.process_batch()

    done, asked = queue.steps(task_id)
    assert (done.key, done.kind, done.state, done.value) == ("len", "step", "done", 3)
    assert (asked.key, asked.kind, asked.state, asked.question) == ("approval:rm", "ask", "open", "Remove 3?")
    queue.answer(task_id, asked.key, "yes")
    assert finish(queue, task_id).result == {"value": "yes"}
    assert [step.value for step in queue.steps(task_id)] == [3, "yes"]
    with pytest.raises(TaskNotFound):
        queue.steps(uuid4())


def test_a_question_takes_the_first_answer_and_nothing_else(queue: Face):
    @queue.task
    async def careful(ctx: AsyncTaskContext, call: str) -> bool:
        verdict = await ctx.options(key=call).wait("approval", Verdict, ask=f"Run {call}?")
        return verdict.ok

    task_id = careful.submit("rm")
    queue.process_batch()
    assert queue.read(task_id).waits_for == "answer approval:rm"
    (question,) = queue.do(events.list_questions)
    assert (question["task_id"], question["key"], question["question"]) == (task_id, "approval:rm", "Run rm?")
    assert question["schema"]["required"] == ["ok"]

    queue.emit("approval", {"ok": False})
    queue.emit("approval", {"ok": False}, to=task_id)
    assert queue.process_batch() == 0
    with pytest.raises(InvalidPayload, match="needs 'ok'"):
        queue.answer(task_id, "approval:rm", {"why": "x"})
    with pytest.raises(InvalidPayload, match="must be of type boolean"):
        queue.answer(task_id, "approval:rm", {"ok": "yes"})
    with pytest.raises(ConfigurationError, match="asks no question"):
        queue.answer(task_id, "other", {"ok": True})
    queue.answer(task_id, "approval:rm", {"ok": True})
    with pytest.raises(InvalidTransition):
        queue.answer(task_id, "approval:rm", {"ok": False})

    assert finish(queue, task_id).result == {"value": True}
    assert queue.do(events.list_questions) == []

    other = careful.submit("ls")
    queue.process_batch()
    queue.cancel(other)
    with pytest.raises(InvalidTransition, match="it is cancelled"):
        queue.answer(other, "approval:ls", {"ok": True})


def test_a_person_wakes_nobody_who_is_parked(queue: Face, shipping: Any):
    task_id = shipping.submit(4)
    queue.process_batch()
    queue.sql(f"UPDATE tasks SET waits_for = 'code x' WHERE id = '{task_id}'")
    queue.emit("shipped:4", {"tracking": "parked"})

    assert queue.read(task_id).waits_for == "code x"


def test_a_delivery_that_breaks_off_between_two_chunks_is_finished_by_the_next(
    queue: Face, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(events, "CHUNK", 2)

    @queue.task
    async def waiting(ctx: AsyncTaskContext) -> int:
        return await ctx.wait("go", int)

    ids = [waiting.submit() for _ in range(5)]
    queue.process_batch()
    queue.sql("INSERT INTO tasklib_events (name, payload) VALUES ('go', '7')")
    (event,) = queue.sql("SELECT id FROM tasklib_events")

    def broken_off() -> Operation[None]:
        delivery, answer = events.deliver_event(event["id"]), None
        while True:
            statement = delivery.send(answer)
            answer = yield statement
            if statement is COMMIT:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.do(broken_off)
    assert queue.count(state="waiting") == 3
    assert queue.do(events.deliver_new) == 1
    assert [finish(queue, task_id).result for task_id in ids] == [{"value": 7}] * 5
    assert queue.do(events.deliver_new) == 0


def test_a_delivery_to_a_few_is_one_transaction(queue: Face, shipping: Any):
    task_id = shipping.submit(8)
    queue.process_batch()
    queue.sql("INSERT INTO tasklib_events (name, payload) VALUES ('shipped:8', '{\"tracking\": \"once\"}')")
    sent: list[Statement] = []

    def counted() -> Operation[int]:
        delivery, answer = events.deliver_new(), None
        while True:
            try:
                statement = delivery.send(answer)
            except StopIteration as stop:
                return stop.value
            sent.append(statement)
            answer = yield statement

    assert queue.do(counted) == 1
    assert [each.name for each in sent].count(COMMIT.name) == 1
    assert queue.do(events.deliver_new) == 0
    assert queue.read(task_id).waits_for is None


def test_two_waits_of_one_function_end_separately(queue: Face):
    @queue.task
    async def both(ctx: AsyncTaskContext) -> list[str]:
        return list(await asyncio.gather(ctx.wait("left", str), ctx.wait("right", str)))

    task_id = both.submit()
    queue.process_batch()
    queue.emit("right", "r")
    queue.process_batch()
    assert queue.read(task_id).waits_for == "event left"
    queue.emit("left", "l")

    assert finish(queue, task_id).result == {"value": ["l", "r"]}


def test_an_event_joins_the_callers_transaction(queue: Face, shipping: Any):
    if queue.url == "sqlite:///:memory:":
        pytest.skip("a database in memory has one connection")
    task_id = shipping.submit(6)
    queue.process_batch()
    connection = queue._connect()
    connection.execute("BEGIN")
    queue.plain.emit("shipped:6", {"tracking": "rolled back"}, connection=connection)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    queue.plain.emit("shipped:6", {"tracking": "committed"}, connection=connection)
    assert queue.do(events.deliver_new) == 0
    connection.execute("COMMIT")
    connection.close()
    queue.do(events.deliver_new)

    assert finish(queue, task_id).result == {"value": "committed"}


def test_a_transaction_that_holds_a_message_keeps_nobody_from_working_on_its_task(queue: Face, shipping: Any):
    """As long as it stays open, the task's lease is renewed, what it says is stored, and it waits and wakes."""
    if queue.is_sqlite:
        pytest.skip("SQLite has one writer at a time")
    task_id = shipping.submit(8)
    worker = queue.worker("shipping")
    claimed = worker.take(task_id)
    with closing(queue._connect()) as connection:
        connection.execute("BEGIN")
        queue.plain.emit("shipped:8", {"tracking": "at last"}, to=task_id, connection=connection)
        assert worker.renew(claimed) == (set(), set())
        worker.report(claimed, 0.5)
        assert worker.release(claimed)
        queue.process_batch()
        assert queue.read(task_id).waits_for == "event shipped:8"
        connection.execute("COMMIT")
    queue.do(events.deliver_new)

    assert finish(queue, task_id).result == {"value": "at last"}


@pytest.mark.parametrize("wrong", ["", "x" * 201, 7, None, "a\0", "a\ud800"], ids=ascii)
def test_a_wrong_name_is_refused(queue: Face, wrong: Any):
    with pytest.raises(ConfigurationError, match="event's name"):
        queue.emit(wrong)


def test_a_message_to_nobody_and_one_too_large_are_refused(queue: Face):
    with pytest.raises(TaskNotFound):
        queue.emit("x", to="00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidPayload, match=r"event 'x' cannot be taken: .* the limit is 262,144"):
        queue.emit("x", "y" * 300_000)


@pytest.mark.parametrize(
    "event, ask", [(7, None), (None, None), ((), None), ("x", ""), ("x", "  "), ("x", 5), (("x", "y"), "?")]
)
def test_a_wait_for_nothing_and_a_question_without_words_are_refused(queue: Face, event: Any, ask: Any):
    @queue.task(max_retries=0)
    async def waiting(ctx: AsyncTaskContext) -> Any:
        return await ctx.wait(event, ask=ask)

    assert "ConfigurationError" in (finish(queue, waiting.submit()).error or "")


def test_a_question_and_what_is_waited_for_hold_no_secret_and_are_bounded(queue: Face):
    @queue.task
    async def telling(ctx: AsyncTaskContext, key: SecretStr) -> None:
        await asyncio.gather(
            ctx.wait("go", ask=f"Use {key.get_secret_value()}? \0 \ud800 " + "x" * 100_000),
            ctx.wait(f"paid-{key.get_secret_value()}"),
        )

    task_id = telling.submit("very-secret")
    queue.process_batch()

    (question,) = queue.do(events.list_questions)
    assert question["question"].startswith("Use **********? \\x00 \\ud800 xxx")
    assert len(question["question"]) < 3000
    assert "very-secret" not in (queue.read(task_id).waits_for or "")
    queue.emit("paid-very-secret")
    queue.answer(task_id, "go", True)
    assert finish(queue, task_id).state == TaskState.COMPLETED
