"""The logic of a step: run, retried and recorded, by itself or in one commit with the data it writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tasklib.core.calls.signals import Restart
from tasklib.core.calls.steps import StepOptions
from tasklib.core.codec import loads
from tasklib.core.texts.causes import causes
from tasklib.core.texts.error_text import bounded, message_of
from tasklib.errors import Abort, ClaimLost, ConfigurationError, ResultError, Retry, Snooze, StepFailed, StorageError
from tasklib.storage.operations.workflows.steps import record_steps
from tasklib.storage.statement import Operation
from tasklib.worker.workflows.effects import Call, Logic, Request, Suspend, Transact, WaitInSlot
from tasklib.worker.workflows.history import History
from tasklib.worker.workflows.records import ERROR_CHARACTERS, ValueType, digest_of, return_annotation
from tasklib.worker.workflows.undo import undo_of

SHORT_PAUSE: Final = 5.0
"""A shorter pause before a step's next try keeps the slot."""
SIGNALS: Final = (Abort, Retry, Snooze, Restart, ResultError, ClaimLost)
"""Exceptions of a step that concern the whole task, and are not recorded as the step's failure."""


class StepLogic(History):
    """Steps of a workflow."""

    def step(
        self, options: StepOptions, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Logic[Any]:
        """Run a function once."""
        if not callable(function):
            remedy = "; pass the function itself, not its call: ctx.step(fn, 1), not ctx.step(fn(1))"
            if inspect.iscoroutine(function):
                function.close()
            raise ConfigurationError(f"ctx.step takes a function and its arguments, got {function!r}{remedy}")
        function = getattr(function, "function", function)  # a task, run as a plain function
        name = options.name or getattr(function, "__name__", None) or type(function).__name__
        undo = undo_of(options, self.context.task.priority)
        key, number = self._take_key(name, options)
        return self._step(key, number, options, undo, Call(key, function, args, kwargs, options.timeout_seconds))

    def _step(
        self, key: str, number: int, options: StepOptions, undo: Mapping[str, Any] | None, call: Call
    ) -> Logic[Any]:
        found = yield from self._find(key, "step", digest := digest_of(call.function, call.args, call.kwargs))
        values = ValueType(f"step {key!r}", return_annotation(call.function), self._max_value_bytes)
        if found is not None and found.state == "done":
            return values.read(found.value)
        if found is not None and found.state == "failed":
            raise self._failure(key, found.error or {})
        tries = 0 if found is None else found.tries
        if found is not None:
            yield from self._pause(key, self._left(found))
        if undo is not None and not options.transactional and not (found is not None and found.has_undo):
            # Before it runs, so that a step whose outcome stays unknown is undone too.
            bound = self._row(key, number, "step", digest, tries) | {"undo": undo}
            yield from self._record(bound, self._timing.monotonic())
        while True:
            started = self._timing.monotonic()
            row = self._row(key, number, "step", digest, tries)
            try:
                if options.transactional:
                    return (yield from self._transact(call, row | {"undo": undo}, values, started))
                value = yield call
            except SIGNALS:
                raise
            except Exception as error:
                tries += 1
                if tries > options.retries:
                    raise (yield from self._fail(row, error, tries, started)) from error
                yield from self._pause_before_retry(row, options, tries, started)
                continue
            text, read = values.passed_through(value)
            yield from self._record(row | {"state": "done", "value": loads(text)}, started)
            return read

    def _transact(self, call: Call, row: dict[str, Any], values: ValueType, started: float) -> Logic[Any]:
        answer: list[Any] = []

        def record(value: Any) -> Operation[Any]:
            text, read = values.passed_through(value)
            answer[:] = [text, read]
            done = self._finished(row | {"state": "done", "value": loads(text)}, started)
            yield from record_steps([self._of_task(done)])

        try:
            yield Transact(call, record)
        except ClaimLost:
            raise
        except StorageError as error:
            # It may have been committed: the next attempt finds out.
            raise Retry(reason=f"the transaction of step {row['key']!r} was broken off: {error}") from error
        text, read = answer
        yield Request("count", {"state": "done"})
        self._remember(row | {"state": "done", "value": loads(text)})
        return read

    def _fail(self, row: dict[str, Any], error: Exception, tries: int, started: float) -> Logic[StepFailed]:
        message = self.context.hide.text(message_of(error)) or ""
        shown = {"type": type(error).__name__, "message": bounded(message, ERROR_CHARACTERS)}
        yield from self._record(row | {"state": "failed", "error": shown, "tries": tries}, started)
        return self._failure(row["key"], shown)

    def _failure(self, key: str, error: Mapping[str, str]) -> StepFailed:
        return StepFailed(key, error.get("type", "Exception"), error.get("message", ""))

    def _pause_before_retry(self, row: dict[str, Any], options: StepOptions, tries: int, started: float) -> Logic[None]:
        delay = min(options.delay_seconds * 2.0 ** (tries - 1), 6 * 3600.0)
        if delay >= SHORT_PAUSE:
            yield from self._record(row | {"tries": tries, "until_in": delay}, started)
        yield from self._pause(row["key"], delay)

    @staticmethod
    def _pause(key: str, left: float) -> Logic[None]:
        if left >= SHORT_PAUSE:
            yield Suspend(f"retry {key}", key, left)
        elif left > 0:
            yield WaitInSlot(left)


def failed_step(error: BaseException) -> str | None:
    """The key of the step whose StepFailed this error is or was caused by."""
    return next((each.key for each in causes(error) if isinstance(each, StepFailed)), None)
