"""What OpenTelemetry calls: its instrumentor, and the spans and metrics of submissions and attempts."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from tasklib.core.calls.middleware import Middleware
from tasklib.core.calls.signals import Restart, Suspended
from tasklib.core.texts.signal_text import for_signals
from tasklib.errors import Snooze
from tasklib.queue.instrumentation import (
    Instrumentation,
    Sending,
    instrument_queues,
    remove_all,
    uninstrument_queues,
)

if TYPE_CHECKING:
    from tasklib.core.calls.context import StepContext, TaskContext
    from tasklib.queue import TaskQueue

SYSTEM = "tasklib"
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds, as the conventions advise."""


class TasklibInstrumentor(BaseInstrumentor):  # type: ignore[misc,unused-ignore]
    """Traces every queue of the program, those that are made later too.

    Examples:
        >>> from tasklib.contrib.opentelemetry import TasklibInstrumentor
        >>> TasklibInstrumentor().instrument()  # tracer_provider=, meter_provider=, parent=True
        >>> task_id = add.submit(1)  # a span, whose context travels with the task
        >>> TasklibInstrumentor().uninstrument()
    """

    _instrumentation: _QueueInstrumentation | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: this package is what it instruments."""
        return ()

    def _instrument(self, **settings: Any) -> None:
        """`tracer_provider` and `meter_provider` instead of the global ones; `parent=True`: an attempt is a child of
        its submission, in the same trace, instead of being linked to it."""
        tracer = trace.get_tracer("tasklib", None, settings.get("tracer_provider"), schema_url=SCHEMA)
        meter = metrics.get_meter("tasklib", "", settings.get("meter_provider"), schema_url=SCHEMA)
        self._instrumentation = _QueueInstrumentation(tracer, meter, parent=bool(settings.get("parent")))
        instrument_queues(self._instrumentation)

    def _uninstrument(self, **_: Any) -> None:
        if self._instrumentation is not None:
            uninstrument_queues(self._instrumentation)
            self._instrumentation = None


class _QueueInstrumentation(Instrumentation):
    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, parent: bool) -> None:
        measures = Measures(meter)
        self._middleware = TracingMiddleware(tracer, measures, parent=parent)
        self._sender = _Sender(tracer, measures)

    def attach(self, queue: TaskQueue) -> None:
        queue.add_middleware(self._middleware)
        queue.senders.append(self._sender)
        queue.header_sources.append(_current_trace)

    def detach(self, queue: TaskQueue) -> None:
        remove_all(queue.middleware, lambda each: each is self._middleware)
        remove_all(queue.senders, lambda each: each is self._sender)
        remove_all(queue.header_sources, lambda each: each is _current_trace)


class Measures:
    """The metrics of the conventions for messaging."""

    def __init__(self, meter: metrics.Meter) -> None:
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Tasks submitted.")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Attempts begun.")
        self.sending = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long submissions took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long attempts took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )


class _Sender:
    """A PRODUCER span around each submission, one for a batch, whose context the tasks carry."""

    def __init__(self, tracer: trace.Tracer, measures: Measures) -> None:
        self._tracer = tracer
        self._measures = measures

    @contextmanager
    def __call__(self, sending: Sending, /) -> Generator[Mapping[str, Any]]:
        common = _attributes("send", "send", sending.name)
        own: dict[str, Any] = {"messaging.message.id": sending.ids[0]} if sending.ids else {}
        if sending.count > 1:
            own["messaging.batch.message_count"] = sending.count
        began = perf_counter()
        failed: dict[str, str] = {}
        with self._tracer.start_as_current_span(
            f"send {sending.name}",
            kind=SpanKind.PRODUCER,
            attributes={**common, **own},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            try:
                yield carrier
            except Exception as error:
                failed = {"error.type": type(error).__qualname__}
                span.set_attributes(failed)
                span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
                raise
            finally:
                self._measures.sending.record(perf_counter() - began, {**common, **failed})
                self._measures.sent.add(sending.count, {**common, **failed})


class TracingMiddleware(Middleware):
    """A CONSUMER span around each attempt, linked to the span that submitted the task or, if asked for, its child."""

    def __init__(self, tracer: trace.Tracer, measures: Measures, *, parent: bool = False) -> None:
        self._tracer = tracer
        self._measures = measures
        self._parent = parent

    def before(self, ctx: TaskContext) -> None:
        """Start the span and make it the current one."""
        task = ctx.task
        origin = propagate.extract(_texts(ctx.headers))
        submitted = trace.get_current_span(origin).get_span_context()
        as_child = self._parent and submitted.is_valid
        common = _attributes("process", "process", task.name)
        span = self._tracer.start_span(
            f"process {task.name}",
            context=origin if as_child else otel_context.Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(submitted)] if submitted.is_valid and not as_child else [],
            attributes={
                **common,
                "messaging.message.id": str(task.id),
                "messaging.client.id": ctx.worker_id or "",
                "messaging.tasklib.attempt": ctx.attempt,
            },
        )
        token = otel_context.attach(trace.set_span_in_context(span))
        identity = span.get_span_context()
        if identity.is_valid:
            ctx.log.add_details(
                trace_id=trace.format_trace_id(identity.trace_id), span_id=trace.format_span_id(identity.span_id)
            )
        self._measures.consumed.add(1, common)
        ctx.scratch[self] = (span, token, perf_counter(), common)

    def after(self, ctx: TaskContext, result: Any) -> None:
        """End the span."""
        self._end(ctx)

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """End the span with the error; a task that puts itself off, or a workflow that waits, has not failed."""
        self._end(ctx, None if isinstance(error, Snooze | Restart | Suspended) else error)

    @contextmanager
    def step(self, ctx: StepContext) -> Generator[None]:
        """A span around each step that runs; one whose value is recorded has none."""
        attributes = {"tasklib.step.key": ctx.step_key, "messaging.message.id": str(ctx.task.id)}
        with self._tracer.start_as_current_span(
            f"step {ctx.step_key}", attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                _describe(span, ctx, error)
                raise

    def _end(self, ctx: TaskContext, error: BaseException | None = None) -> None:
        span, token, began, common = ctx.scratch.pop(self)
        otel_context.detach(token)
        kind = {} if error is None else {"error.type": type(error).__qualname__}
        self._measures.processing.record(perf_counter() - began, {**common, **kind})
        if error is not None:
            _describe(span, ctx, error)
        span.end()


def _current_trace() -> dict[str, str]:
    """What a task carries that is not submitted by itself, such as a child of a workflow: it links to this span."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


def _describe(span: Span, ctx: TaskContext, error: BaseException) -> None:
    error = for_signals(error)
    kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    span.add_event(
        "exception",
        {
            "exception.type": kind,
            "exception.message": ctx.hide.text(str(error)),
            "exception.stacktrace": ctx.hide.text("".join(format_exception(error))),
        },
    )


def _attributes(name: str, kind: str, destination: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
    }


def _texts(headers: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if isinstance(value, str)}
