"""OpenTelemetry: a span for each submission and each attempt, joined across processes by the task's headers.

    from tasklib.contrib.opentelemetry import instrument
    instrument(queue)

Needs the package `opentelemetry-api`; without a configured SDK it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from tasklib.core.calls.middleware import Middleware
from tasklib.core.redaction import Redactor

if TYPE_CHECKING:
    from tasklib.core.calls.context import TaskContext
    from tasklib.queue import TaskQueue

SYSTEM = "tasklib"


def instrument(queue: TaskQueue, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Trace this queue: its submissions carry the current trace, its executions are spans that link to it."""
    tracer = trace.get_tracer("tasklib", tracer_provider=tracer_provider)
    queue.add_headers(_trace_headers)
    queue.add_middleware(TracingMiddleware(tracer, Redactor(queue.config.redact_keys)))


class TracingMiddleware(Middleware):
    """Opens a CONSUMER span around each attempt, linked to the span that submitted the task."""

    def __init__(self, tracer: trace.Tracer, redactor: Redactor | None = None) -> None:
        self._tracer = tracer
        self._redactor = redactor or Redactor()

    def before(self, ctx: TaskContext) -> None:
        """Start the span and make it the current one."""
        task = ctx.task
        origin = trace.get_current_span(propagate.extract(_texts(ctx.headers))).get_span_context()
        span = self._tracer.start_span(
            f"process {task.name}",
            kind=SpanKind.CONSUMER,
            links=[Link(origin)] if origin.is_valid else [],
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": task.name,
                "messaging.message.id": str(task.id),
                "messaging.client.id": ctx.worker_id or "",
                "tasklib.attempt": ctx.attempt,
            },
        )
        token = otel_context.attach(trace.set_span_in_context(span))
        ctx.scratch[self] = (span, token)

    def after(self, ctx: TaskContext, result: Any) -> None:
        """End the span."""
        span, token = ctx.scratch.pop(self)
        otel_context.detach(token)
        span.end()

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """End the span with the error."""
        span, token = ctx.scratch.pop(self)
        otel_context.detach(token)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
        task = ctx.task
        hide = self._redactor.text
        span.add_event(
            "exception",
            {
                "exception.type": type(error).__qualname__,
                "exception.message": hide(str(error), task.kwargs, task.headers),
                "exception.stacktrace": hide("".join(format_exception(error)), task.kwargs, task.headers),
            },
        )
        span.end()


def _trace_headers() -> Mapping[str, Any]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


def _texts(headers: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if isinstance(value, str)}
