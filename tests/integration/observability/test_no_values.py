"""No signal has values of a task: whatever fails, they are in the task's error and in no log line, span or report."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.transport import Transport

from tasklib import AsyncTaskContext, InvalidArguments, TaskContext, TaskQueue
from tasklib.contrib.opentelemetry import TasklibInstrumentor
from tasklib.contrib.sentry import TasklibIntegration
from tasklib.core.calls.middleware import Middleware

MARK = "-".join(["no", "ones", "business"])
"""Spelled so that no line of this file contains it: reports quote lines of code."""


class Odd:
    def __repr__(self) -> str:
        return MARK


class Signals(Transport):
    """Everything that leaves the process, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []
        self.spans, self.metrics = InMemorySpanExporter(), InMemoryMetricReader()

    def capture_envelope(self, envelope: Any) -> None:
        self.sent += [item.payload.json for item in envelope.items]

    def report(self, ctx: TaskContext, error: BaseException) -> None:
        self.sent.append("".join(traceback.format_exception(error)))
        raise RuntimeError("the reporter is broken")

    def texts(self) -> dict[str, str]:
        spans = [each.to_json() for each in self.spans.get_finished_spans()]
        data = self.metrics.get_metrics_data()
        return {"sent": repr(self.sent), "spans": repr(spans), "metrics": data.to_json() if data else ""}


class Broken(Middleware):
    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        raise RuntimeError("the middleware is broken")


@pytest.fixture
def signals() -> Iterator[Signals]:
    made = Signals()
    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1",
        transport=made,
        traces_sample_rate=1.0,
        default_integrations=False,
        integrations=[TasklibIntegration()],
    )
    tracers, meters = TracerProvider(), MeterProvider([made.metrics])
    tracers.add_span_processor(SimpleSpanProcessor(made.spans))
    TasklibInstrumentor().instrument(tracer_provider=tracers, meter_provider=meters)
    yield made
    TasklibInstrumentor().uninstrument()
    sentry_sdk.init(default_integrations=False)


def test_no_error_of_ours_brings_values_into_a_signal(
    signals: Signals, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    with TaskQueue(f"sqlite:///{tmp_path}/tasks.db") as queue, TaskQueue(queue.config) as elsewhere:
        queue.on_error(signals.report)
        queue.add_middleware(Broken())
        task = queue.task(max_retries=0)

        @task
        def refused(amount: int) -> None: ...

        @task
        async def refused_too(amount: int) -> None: ...

        @task
        def unserialisable() -> Any:
            return {"in": [Odd()]}

        @task
        async def large() -> Any:
            return {MARK: Odd()}

        @task
        async def step(ctx: AsyncTaskContext) -> None:
            await ctx.step(lambda: Odd())

        @task
        async def step_refused(ctx: AsyncTaskContext) -> None:
            def submit() -> None:
                refused.submit(MARK)  # type: ignore[arg-type]

            await ctx.options(name="submit", retries=0).step(submit)

        @task
        async def child(ctx: AsyncTaskContext) -> None:
            await ctx.run(unserialisable.bind())

        @task
        async def misused(ctx: AsyncTaskContext) -> None:
            await ctx.map(refused, [{"amount": 1}], max_failures=MARK)  # type: ignore[arg-type]

        @task
        def submits() -> None:
            try:
                refused.submit(MARK)  # type: ignore[arg-type]
            except InvalidArguments:
                raise KeyError("wrapped") from None

        @task
        def wraps() -> None:
            try:
                refused.submit(MARK)  # type: ignore[arg-type]
            except InvalidArguments as error:
                raise KeyError("wrapped") from error

        @task
        def several() -> None:
            raise ExceptionGroup("several", [InvalidArguments("refused", [MARK]), ValueError("other")])

        @task
        def key(of: str) -> None:
            queue.enqueue("refused", {"amount": 1}, priority=MARK)  # type: ignore[arg-type]

        def handler(payload: int) -> None: ...

        queue.register_handler("handler", handler)
        given: dict[str, Any] = {each.name: {"amount": MARK} for each in (refused, refused_too)}
        given |= {key.name: {"of": MARK}, "handler": MARK}
        own = (unserialisable, large, step, step_refused, child, misused, submits, wraps, several)
        for name in (*given, *(each.name for each in own)):
            elsewhere.enqueue(name, given.get(name, {}))
        elsewhere.enqueue(refused.name, [MARK])
        with pytest.raises(InvalidArguments, match=MARK):
            refused.submit(MARK)  # type: ignore[arg-type]
        while queue.process_batch():
            pass

        failed = queue.list(limit=100)
        assert [each.name for each in failed if each.state != "failed"] == []
        assert {each.name for each in failed if MARK not in (each.error or "")} == {submits.name}

    logged = "\n".join([*(repr(vars(each)) for each in caplog.records), caplog.text])
    for where, text in {"log": logged, **signals.texts()}.items():
        assert refused.name in text, where
        assert MARK not in text, (where, text[max(0, text.index(MARK) - 900) : text.index(MARK) + 200])
    assert "InvalidArguments: what it says may quote values" in logged
    assert "KeyError: 'wrapped'" in logged
