"""Flows: tasks after others, results as arguments, and what is skipped; stored in one transaction."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tasklib import TaskState
from tasklib.errors import ConfigurationError, InvalidArguments
from tests.contract.test_groups import drain
from tests.fixtures.queues import Face


@pytest.fixture
def add(queue: Face) -> Any:
    @queue.task(max_retries=0)
    def add(a: int, b: int = 0) -> int:
        if a < 0:
            raise ValueError("negative")
        return a + b

    return add


def submit(queue: Face, flow: Any) -> list[Any]:
    ids: list[Any] = queue.via(flow).submit()
    return ids


def test_a_result_used_as_an_argument_is_a_dependency_and_arrives_as_its_type(queue: Face, add: Any):
    seen: list[Any] = []

    @queue.task
    def day() -> date:
        return date(2030, 1, 2)

    @queue.task
    def report(when: date, total: int) -> None:
        seen.append((when, total))

    flow = queue.flow("nightly")
    one, two = flow.add(add.bind(1)), flow.add(add.bind(2))
    both = flow.add(add.bind(one.result, b=two.result))
    flow.add(report.bind(flow.add(day.bind()).result, both.result))
    ids = submit(queue, flow)

    waiting = queue.read(both.id)
    assert (waiting.waits_for, waiting.due_at, waiting.tags) == ("prerequisites add", None, {"flow": "nightly"})
    drain(queue)

    assert seen == [(date(2030, 1, 2), 3)]
    assert {queue.read(task_id).state for task_id in ids} == {TaskState.COMPLETED}
    assert queue.read(both.id).kwargs == {"a": 1, "b": 2}


def test_results_keep_their_nulls(queue: Face):
    seen: list[Any] = []

    @queue.task
    def nothing(deep: bool) -> Any:
        return {"a": None, "b": [None, {"c": None}]} if deep else None

    @queue.task
    def take(one: Any, two: Any, three: Any) -> None:
        seen.append((one, two, three))

    flow = queue.flow("nulls")
    flow.add(take.bind(flow.add(nothing.bind(False)).result, flow.add(nothing.bind(True)).result, {"x": None}))
    submit(queue, flow)
    drain(queue)

    assert seen == [(None, {"a": None, "b": [None, {"c": None}]}, {"x": None})]


def test_a_failure_skips_what_needs_success_and_runs_what_needs_failure(queue: Face, add: Any):
    flow = queue.flow("sad")
    bad = flow.add(add.bind(-1))
    needs = flow.add(add.bind(bad.result))
    further = flow.add(add.bind(5), after=[needs])
    alert = flow.add(add.bind(6), after=[bad], run_if="failure")
    always = flow.add(add.bind(7), after=[further, alert], run_if="end")
    fine = flow.add(add.bind(8), after=[flow.add(add.bind(1))], run_if="failure")
    submit(queue, flow)
    drain(queue)

    states = {name: queue.read(node.id).state.value for name, node in vars_of(bad=bad, needs=needs, further=further)}
    assert states == {"bad": "failed", "needs": "cancelled", "further": "cancelled"}
    assert queue.read(needs.id).error == "Skipped: add was failed"
    assert queue.read(further.id).error == "Skipped: add was cancelled"
    assert queue.read(alert.id).result == {"value": 6}
    assert queue.read(always.id).result == {"value": 7}
    assert queue.read(fine.id).error == "Skipped: nothing before it failed"


def vars_of(**nodes: Any) -> Any:
    return nodes.items()


def test_a_flow_joins_the_callers_transaction(queue: Face, add: Any):
    if queue.url == "sqlite:///:memory:":
        pytest.skip("a database in memory has one connection")
    flow = queue.plain.flow("mine")
    flow.add(add.bind(flow.add(add.bind(1)).result))
    connection = queue._connect()
    connection.execute("BEGIN")
    flow.submit(connection=connection)
    connection.execute("ROLLBACK")
    assert queue.count() == 0
    connection.execute("BEGIN")
    flow.submit(connection=connection)
    connection.execute("COMMIT")
    connection.close()
    drain(queue)

    assert queue.count(state="completed") == 2


def test_a_cancelled_prerequisite_skips_what_waits(queue: Face, add: Any):
    flow = queue.flow("cancelled")
    first = flow.add(add.options(delay_seconds=60).bind(1))
    second = flow.add(add.bind(2), after=[first])
    submit(queue, flow)
    queue.cancel(first.id)
    drain(queue)

    assert queue.read(second.id).state is TaskState.CANCELLED


def test_a_task_that_was_cancelled_while_it_waited_waits_again_when_it_is_retried(queue: Face, add: Any):
    flow = queue.flow("pair")
    first = flow.add(add.options(delay_seconds=60).bind(1))
    second = flow.add(add.bind(first.result))
    submit(queue, flow)
    queue.cancel(second.id)
    queue.retry(second.id)
    drain(queue)
    assert queue.read(second.id).waits_for == "prerequisites add"
    queue.advance(60)
    drain(queue)

    assert queue.read(second.id).result == {"value": 1}


def test_a_long_chain_is_skipped_to_its_end(queue: Face, add: Any):
    flow = queue.flow("chain")
    last = flow.add(add.bind(-1))
    for n in range(8):
        last = flow.add(add.bind(n), after=[last])
    submit(queue, flow)
    drain(queue)

    assert queue.count(state="cancelled") == 8


@pytest.mark.backends("sqlite-file")
def test_a_chain_of_a_thousand_is_skipped_after_a_foreign_program_has_failed_its_head(queue: Face, add: Any):
    """No trigger starts another: SQLite's triggers do not nest without end, and a foreign connection sets no limit."""
    flow = queue.flow("chain")
    head = last = flow.add(add.bind(1))
    for n in range(1000):
        last = flow.add(add.bind(n), after=[last])
    submit(queue, flow)
    queue.sql(
        "UPDATE tasks SET state = 'failed', error = 'E', completed_at = '2030-01-01 12:00:00.000000' "
        f"WHERE id = '{head.id}'"
    )
    drain(queue)

    assert queue.count(state="cancelled") == 1000
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_wrong_flows_are_refused(queue: Face, add: Any):
    flow, other = queue.flow("one"), queue.flow("other")
    with pytest.raises(ConfigurationError, match="has no tasks"):
        flow.submit()
    with pytest.raises(ConfigurationError, match=r"takes task\.bind"):
        flow.add(add)
    with pytest.raises(ConfigurationError, match="no task of the flow"):
        flow.add(add.bind(1), after=[other.add(add.bind(2))])
    with pytest.raises(ConfigurationError, match="run_if"):
        flow.add(add.bind(1), run_if="maybe")
    with pytest.raises(ConfigurationError, match="nothing is before it"):
        flow.add(add.bind(1), run_if="failure")
    with pytest.raises(ConfigurationError, match=r"write after=\[\.\.\.\]"):
        flow.add(add.bind(1), after=flow.add(add.bind(2)))
    with pytest.raises(InvalidArguments, match="'c' is not a parameter"):
        add.bind(c=flow.add(add.bind(1)).result)
    one = flow.add(add.bind(1)).result
    for wrong in (lambda: add.bind([one, one]), lambda: add.bind(one, b={"of": [one]})):
        with pytest.raises(InvalidArguments, match=r"<result of <Node 'add'.*an argument of its own, not a part"):
            wrong()
    with pytest.raises(ConfigurationError, match="unique key"):
        flow.add(add.options(unique_key="k").bind(1))


def test_a_flow_that_is_submitted_again_changes_nothing_and_takes_no_more_tasks(queue: Face, add: Any):
    flow = queue.flow("twice")
    one = flow.add(add.bind(1))
    two = flow.add(add.bind(one.result))
    ids = submit(queue, flow)
    assert submit(queue, flow) == ids
    groups = queue.sql("SELECT id FROM tasklib_groups")
    with pytest.raises(ConfigurationError, match="is submitted already"):
        flow.add(add.bind(3), after=[two])
    drain(queue)

    assert (len(groups), queue.count(state="completed")) == (1, 2)
