"""What the Sentry SDK calls: its integration, and the spans, errors and check-ins that it sends."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.integrations import Integration
from sentry_sdk.utils import event_from_exception

from tasklib.core.calls.middleware import Middleware
from tasklib.core.calls.signals import Restart, Suspended
from tasklib.core.codec import size_of
from tasklib.core.schedule import Plan
from tasklib.core.texts.signal_text import for_signals
from tasklib.errors import Abort, Retry, Snooze
from tasklib.queue.instrumentation import Instrumentation, Sending, instrument_queues

if TYPE_CHECKING:
    from tasklib.core.calls.context import TaskContext
    from tasklib.queue import TaskQueue

TRACE_HEADERS = ("sentry-trace", "baggage")


class TasklibIntegration(Integration):
    """Reports on every queue of the program, those that are made later too.

    `monitor_schedules`: whether the runs of schedules are reported as check-ins of monitors of the same name.

    Examples:
        >>> from tasklib.contrib.sentry import TasklibIntegration
        >>> integration = TasklibIntegration(monitor_schedules=False)
        >>> integration.identifier  # sentry_sdk.init(dsn=..., integrations=[integration])
        'tasklib'
    """

    identifier = "tasklib"

    def __init__(self, *, monitor_schedules: bool = True) -> None:
        self.monitor_schedules = monitor_schedules

    @staticmethod
    def setup_once() -> None:
        """Attach to every queue; called by the SDK, once in a program."""
        instrument_queues(_QueueInstrumentation())


def _integration() -> TasklibIntegration | None:
    return sentry_sdk.get_client().get_integration(TasklibIntegration)


class _QueueInstrumentation(Instrumentation):
    def attach(self, queue: TaskQueue) -> None:
        queue.add_middleware(_Reporting(queue))
        queue.senders.append(_publishing)


@contextmanager
def _publishing(sending: Sending, /) -> Generator[Mapping[str, Any]]:
    """A `queue.publish` span around each submission, whose trace the tasks carry."""
    if _integration() is None:
        yield {}
        return
    with sentry_sdk.start_span(op="queue.publish", name=sending.name) as span:
        span.set_data("messaging.system", "tasklib")
        span.set_data("messaging.destination.name", sending.name)
        if sending.ids:
            span.set_data("messaging.message.id", sending.ids[0])
        if sending.input_bytes is not None and span.sampled:
            span.set_data("messaging.message.body.size", sending.input_bytes())
        if sending.count > 1:
            span.set_data("messaging.batch.message_count", sending.count)
        given = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
        yield {key: value for key, value in given.items() if value}


class _Reporting(Middleware):
    """A transaction with a `queue.process` span around each attempt; its error is captured."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue

    def before(self, ctx: TaskContext) -> None:
        """Start both."""
        integration = _integration()
        if integration is None:
            return
        task, stack = ctx.task, ExitStack()
        scope = stack.enter_context(sentry_sdk.isolation_scope())
        scope.clear_breadcrumbs()
        scope.set_tag("tasklib.task", task.name)
        scope.set_context("tasklib", {"id": str(task.id), "attempt": ctx.attempt, "worker": ctx.worker_id})
        carried = {key: ctx.headers[key] for key in TRACE_HEADERS if isinstance(ctx.headers.get(key), str)}
        begun = sentry_sdk.continue_trace(carried, op="queue.task.tasklib", name=task.name, source="task")
        transaction = stack.enter_context(sentry_sdk.start_transaction(begun))
        span = stack.enter_context(sentry_sdk.start_span(op="queue.process", name=task.name))
        span.set_data("messaging.system", "tasklib")
        span.set_data("messaging.destination.name", task.name)
        span.set_data("messaging.message.id", str(task.id))
        span.set_data("messaging.message.retry.count", max(0, ctx.attempt - 1))
        if span.sampled:
            span.set_data("messaging.message.body.size", size_of(task.kwargs))
        if task.started_at is not None:
            waited = (task.started_at - (task.next_retry_at or task.scheduled_at)).total_seconds()
            span.set_data("messaging.message.receive.latency", max(0.0, waited * 1000))
        monitor = self._monitor(ctx) if integration.monitor_schedules else None
        if monitor is not None:
            slug, settings = monitor
            check_in = capture_checkin(slug, status="in_progress", monitor_config=settings)
            monitor = (slug, settings, check_in, perf_counter())
        ctx.scratch[self] = (stack, transaction, span, monitor)

    def after(self, ctx: TaskContext, result: Any) -> None:
        """End both."""
        self._end(ctx, None)

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """End both with the error; Snooze, Retry, Abort and a wait are decisions of the task, and no errors."""
        self._end(ctx, error)

    def _end(self, ctx: TaskContext, error: BaseException | None) -> None:
        kept = ctx.scratch.pop(self, None)
        if kept is None:
            return
        stack, transaction, span, monitor = kept
        is_error = error is not None and not isinstance(error, Snooze | Retry | Abort | Restart | Suspended)
        if error is not None and is_error:
            _capture(ctx, error)
        for each in (span, transaction):
            each.set_status("internal_error" if is_error else "ok")
        if monitor is not None:
            slug, settings, check_in, began = monitor
            how = "ok" if error is None else "error"
            capture_checkin(slug, check_in, status=how, duration=perf_counter() - began, monitor_config=settings)
        stack.close()

    def _monitor(self, ctx: TaskContext) -> tuple[Any, ...] | None:
        """The monitor of the schedule that made this task, and how it runs, where this program declares it."""
        name = ctx.headers.get("schedule")
        if not isinstance(name, str):
            return None
        plan = next((each for each in self._queue.declared_schedules if each.name == name), None)
        return name, None if plan is None else _monitor_settings(plan)


def _monitor_settings(plan: Plan) -> dict[str, Any] | None:
    """The schedule in Sentry's words: five fields of cron, or an interval in whole minutes; None for what it lacks."""
    if plan.cron is not None:
        if len(plan.cron.split()) > 5:
            return None
        return {"schedule": {"type": "crontab", "value": plan.cron}, "timezone": plan.tz or "UTC"}
    minutes = round((plan.every or 0) / 60)
    return {"schedule": {"type": "interval", "value": minutes, "unit": "minute"}} if minutes else None


def _capture(ctx: TaskContext, error: BaseException) -> None:
    event, hint = event_from_exception(
        for_signals(error),
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "tasklib", "handled": False},
    )
    for each in event.get("exception", {}).get("values", []):
        if each.get("value"):
            each["value"] = ctx.hide.text(each["value"])
        for frame in (each.get("stacktrace") or {}).get("frames", []):
            frame.pop("vars", None)  # the task's arguments are among them
    sentry_sdk.capture_event(event, hint=hint)
