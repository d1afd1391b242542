"""OpenTelemetry: one trace from the submission to the attempt, in other processes too, and the messaging metrics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from tasklib import AsyncTaskContext, Snooze, StepFailed, TaskContext, TaskQueue
from tasklib.contrib.opentelemetry import TasklibInstrumentor
from tests.fixtures import python


class Telemetry:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def start(self, **settings: Any) -> None:
        TasklibInstrumentor().instrument(tracer_provider=self.tracers, meter_provider=self.meters, **settings)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    TasklibInstrumentor().uninstrument()
    telemetry.tracers.shutdown()
    telemetry.meters.shutdown()


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with TaskQueue("sqlite:///:memory:") as queue:

        @queue.task(max_retries=0)
        def work(number: int) -> int:
            if number == 13:
                raise ValueError("unlucky")
            return number

        yield queue


def context_of(span: ReadableSpan) -> Any:
    return span.get_span_context()


@pytest.mark.parametrize("made", ["before", "after"])
def test_the_attempt_links_to_the_submission_which_is_a_child_of_the_request(telemetry: Telemetry, made: str) -> None:
    queue = TaskQueue("sqlite:///:memory:") if made == "before" else None
    telemetry.start()
    queue = queue or TaskQueue("sqlite:///:memory:")
    queue.register_handler("work", lambda payload: payload)
    with telemetry.tracers.get_tracer("test").start_as_current_span("request") as request:
        task_id = queue.enqueue("work", "very private")
    queue.process_batch()
    queue.close()

    (send,), (process,) = telemetry.spans("send work"), telemetry.spans("process work")
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    assert [link.context.span_id for link in process.links] == [context_of(send).span_id]
    assert process.parent is None
    assert process.attributes is not None
    assert dict(process.attributes) | {"messaging.client.id": ""} == {
        "messaging.system": "tasklib",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "work",
        "messaging.message.id": str(task_id),
        "messaging.client.id": "",
        "messaging.tasklib.attempt": 1,
    }
    assert "private" not in "".join(each.to_json() for each in telemetry.exporter.get_finished_spans())


def test_with_parent_the_attempt_is_in_the_same_trace(queue: TaskQueue, telemetry: Telemetry) -> None:
    telemetry.start(parent=True)
    queue.enqueue("work", {"number": 1})
    queue.process_batch()

    (send,), (process,) = telemetry.spans("send work"), telemetry.spans("process work")
    assert process.parent is not None
    assert process.parent.span_id == context_of(send).span_id
    assert context_of(process).trace_id == context_of(send).trace_id
    assert not process.links


async def test_a_batch_is_one_span_and_all_its_attempts_link_to_it(telemetry: Telemetry) -> None:
    telemetry.start()
    async with TaskQueue("sqlite:///:memory:") as queue:

        @queue.task
        async def each(number: int) -> int:
            return number

        await each.asubmit_many({"number": n} for n in range(5))
        await each.asubmit(5)
        await queue.aprocess_batch()

    batch, single = telemetry.spans("send each")
    assert batch.attributes is not None
    assert single.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 5
    assert "messaging.message.id" in single.attributes
    linked = [span.links[0].context.span_id for span in telemetry.spans("process each")]
    assert sorted(map([context_of(batch).span_id, context_of(single).span_id].index, linked)) == [0] * 5 + [1]


def test_what_a_task_submits_belongs_to_its_attempt(queue: TaskQueue, telemetry: Telemetry) -> None:
    telemetry.start()
    queue.register_handler("outer", lambda payload: str(queue.enqueue("work", {"number": 1})))
    queue.enqueue("outer")
    queue.process_batch()
    queue.process_batch()

    (outer,), (send,), (inner,) = map(telemetry.spans, ("process outer", "send work", "process work"))
    assert send.parent is not None
    assert send.parent.span_id == context_of(outer).span_id
    assert inner.links[0].context.span_id == context_of(send).span_id


def test_the_four_metrics(queue: TaskQueue, telemetry: Telemetry) -> None:
    telemetry.start()
    for number in (1, 2, 13):
        queue.enqueue("work", {"number": number}, max_attempts=1)
    queue.process_batch()

    points = telemetry.points()
    assert [point.value for point in points["messaging.client.sent.messages"]] == [3]
    assert [point.value for point in points["messaging.client.consumed.messages"]] == [3]
    assert [point.count for point in points["messaging.client.operation.duration"]] == [3]
    durations = {point.attributes.get("error.type"): point for point in points["messaging.process.duration"]}
    assert {kind: point.count for kind, point in durations.items()} == {None: 2, "ValueError": 1}
    assert durations[None].explicit_bounds[:2] == (0.005, 0.01)
    for each in points.values():
        assert {key for point in each for key in point.attributes} <= {
            "messaging.system",
            "messaging.operation.name",
            "messaging.operation.type",
            "messaging.destination.name",
            "error.type",
        }


def test_an_error_ends_the_span_and_a_snooze_is_none(queue: TaskQueue, telemetry: Telemetry) -> None:
    telemetry.start()

    def later(payload: Any) -> None:
        raise Snooze(delay=60)

    queue.register_handler("later", later)
    queue.enqueue("later")
    queue.enqueue("work", {"number": 13}, max_attempts=1)
    queue.process_batch()

    (snoozed,), (failed,) = telemetry.spans("process later"), telemetry.spans("process work")
    assert snoozed.status.is_unset
    assert not failed.status.is_ok
    assert [event.attributes["exception.message"] for event in failed.events if event.attributes] == ["unlucky"]


def test_a_step_is_a_span_of_its_attempt_and_children_link_to_it(queue: TaskQueue, telemetry: Telemetry) -> None:
    telemetry.start()

    def fetch(n: int) -> int:
        return n

    def fails() -> None:
        raise ValueError("unlucky")

    @queue.task(max_retries=0)
    async def part(n: int) -> int:
        return n

    @queue.task(context=True, max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> int:
        await ctx.step(fetch, 1)
        with suppress(StepFailed):
            await ctx.step(fails)
        return await ctx.run(part.bind(3))

    workflow.submit()
    while queue.process_batch():
        pass

    attempts = telemetry.spans("process workflow")
    assert [each.status.is_unset for each in attempts] == [True, True]  # to wait is no error
    (step,), (failed,) = telemetry.spans("step fetch"), telemetry.spans("step fails")
    assert [each.parent.span_id for each in (step, failed) if each.parent] == [context_of(attempts[0]).span_id] * 2
    assert (step.status.is_unset, failed.status.is_ok) == (True, False)
    (child,) = telemetry.spans("process part")
    assert [link.context.span_id for link in child.links] == [context_of(attempts[0]).span_id]


def test_log_records_of_the_task_name_the_trace(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    telemetry.start()
    caplog.set_level("INFO", "tasklib.task")
    with TaskQueue("sqlite:///:memory:") as queue:

        @queue.task
        def talk(ctx: TaskContext) -> None:
            ctx.log("hello")

        talk.submit()
        queue.process_batch()

    (span,) = telemetry.spans("process talk")
    (record,) = [each for each in caplog.records if each.message == "hello"]
    assert record.trace_id == trace.format_trace_id(context_of(span).trace_id)  # type: ignore[attr-defined]
    assert record.span_id == trace.format_span_id(context_of(span).span_id)  # type: ignore[attr-defined]


def test_uninstrumented_queues_are_as_before(queue: TaskQueue, telemetry: Telemetry) -> None:
    before = [*queue.middleware], [*queue.senders]
    telemetry.start()
    TasklibInstrumentor().uninstrument()
    task_id = queue.enqueue("work", {"number": 1})
    queue.process_batch()

    assert telemetry.exporter.get_finished_spans() == ()
    assert (queue.middleware, queue.senders) == before
    assert "traceparent" not in queue.get(task_id).headers  # type: ignore[union-attr]


@pytest.mark.parametrize("many", [False, True])
async def test_a_task_created_over_http_links_to_the_request(sqlite_url: str, telemetry: Telemetry, many: bool) -> None:
    telemetry.start()
    async with TaskQueue(sqlite_url) as queue:
        queue.register_handler("work", lambda payload: payload)
        transport = httpx.ASGITransport(queue.asgi(auth=None))
        body = {"type": "work", "payload": 1}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            with telemetry.tracers.get_tracer("test").start_as_current_span("request") as request:
                path, sent = ("/api/tasks/batch", {"tasks": [body, body]}) if many else ("/api/tasks", body)
                answer = await client.post(path, json=sent)
        assert answer.status_code == 201, answer.text
        await queue.aprocess_batch()

    (send,) = telemetry.spans("send work")
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    linked = {span.links[0].context.span_id for span in telemetry.spans("process work")}
    assert linked == {context_of(send).span_id}


def test_it_can_be_found_by_its_entry_point() -> None:
    (found,) = [each for each in entry_points(group="opentelemetry_instrumentor") if each.name == "tasklib"]
    assert found.load() is TasklibInstrumentor


def test_the_trace_reaches_child_processes(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(TRACED.format(url=sqlite_url))
    done = python.run([sys.executable, "traced.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr

    spans = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    (send,) = [each for each in spans if each["name"] == "send isolated"]
    (process,) = [each for each in spans if each["name"] == "process isolated"]
    assert process["link"] == send["id"]
    assert process["pid"] != send["pid"]


TRACED = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from tasklib import TaskQueue
from tasklib.contrib.opentelemetry import TasklibInstrumentor

class Lines(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            for span in spans:
                own = {{"name": span.name, "id": span.get_span_context().span_id, "pid": os.getpid()}}
                own["link"] = span.links[0].context.span_id if span.links else None
                file.write(json.dumps(own) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
trace.set_tracer_provider(provider)
TasklibInstrumentor().instrument()
queue = TaskQueue({url!r})

@queue.task(isolation="process")
def isolated() -> int:
    return os.getpid()

if __name__ == "__main__":
    task_id = isolated.submit()
    queue.process_batch()
    assert queue.wait(task_id, timeout=180).result["value"] != os.getpid()
"""
