"""One run of a workflow's function: which step is which, what is recorded already, and what is to be done.

Everything here is logic without I/O, written as generators (`effects.py`); `drivers.py` carries it out.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

from tasklib.core.calls.context import StepContext, TaskContext
from tasklib.core.calls.current import current_context
from tasklib.core.calls.steps import MAX_KEY, StepOptions, Suspended
from tasklib.core.codec import loads
from tasklib.core.lifecycle import Ending
from tasklib.core.limits import check_budget, is_amount
from tasklib.core.task import NewTask
from tasklib.core.time.timing import Timing
from tasklib.errors import (
    Abort,
    ClaimLost,
    ConfigurationError,
    ContextError,
    NonDeterminism,
    ResultError,
    Retry,
    Snooze,
    StepFailed,
    StepKeyError,
    StorageError,
    TaskFailed,
    WaitTimeout,
    require_aware,
    seconds_of,
)
from tasklib.queue.groups import Group
from tasklib.storage.database import Database
from tasklib.storage.operations.workflows.events import check_event
from tasklib.storage.operations.workflows.groups import rows_of
from tasklib.storage.operations.workflows.steps import HAS_STEPS, record_steps
from tasklib.storage.rows import ClaimedTask
from tasklib.storage.statement import Operation
from tasklib.submission.function import BoundTask, Submitter
from tasklib.worker.workflows.effects import Ask, Call, Logic, Park, Rest, Transact
from tasklib.worker.workflows.records import ERROR_CHARACTERS, Record, ValueType, digest_of, return_annotation

SHORT_SLEEP: Final = 1.0
"""A sleep below so many seconds keeps its slot: to give it up would take longer."""
SHORT_PAUSE: Final = 5.0
"""The same for the pause before a step is tried again."""
LONGEST_SPREAD: Final = 10.0
"""Seconds over which those who are short of a budget again and again come back at most."""
CHUNK: Final = 1000
"""Children that are stored at once."""
MOST_STEPS: Final = 10_000
"""Steps that one run may have; `restart` begins anew."""
SIGNALS: Final = (Abort, Retry, Snooze, ResultError, ClaimLost)
"""What a step may raise about the whole task: it is not recorded."""


class Engine:
    """The state of one attempt at a workflow."""

    def __init__(
        self,
        task: ClaimedTask,
        context: TaskContext,
        timing: Timing,
        *,
        max_value_bytes: int,
        is_transactional: bool,
    ) -> None:
        self.task = task
        self.context = context
        self._timing = timing
        self._max_value_bytes = max_value_bytes
        self._is_transactional = is_transactional
        self._records: dict[str, Record] | None = None if task.marks & HAS_STEPS else {}
        self._loaded_at = timing.monotonic()
        self._counts: dict[str, int] = {}
        self._users: dict[str, object] = {}
        """Which asyncio task or thread makes the steps of each name."""
        self._keys: set[str] = set()
        self._numbers = 0
        self.suspension: Ending | None = None
        """How the attempt ends, once that is decided: whatever the function does after it is ignored."""
        self.mismatch: NonDeterminism | None = None
        self._lock = threading.Lock()
        self.database: Callable[[], Database] | None = None
        """Where results of children are read; set by the driver."""

    # --- What the function asks for.  Keys are given when the call is made, not when it is awaited.

    def step(
        self, options: StepOptions, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Logic[Any]:
        """Run a function once."""
        if not callable(function):
            raise ConfigurationError(f"ctx.step takes a function and its arguments, got {function!r}")
        function = getattr(function, "function", function)  # a task, run as a plain function
        name = options.name or getattr(function, "__name__", None) or type(function).__name__
        key, number = self._take_key(name, options)
        return self._step(key, number, options, Call(key, function, args, kwargs, options.timeout_seconds))

    def sleep(self, options: StepOptions, seconds: float | timedelta | None, until: datetime | None) -> Logic[None]:
        """Wait for a time."""
        if (seconds is None) == (until is None):
            raise ConfigurationError("sleep takes seconds or until=, one of them")
        wanted = None if seconds is None else seconds_of(seconds)
        moment = None if until is None else require_aware(until, "until")
        key, number = self._take_key(options.name or "sleep", options)
        return self._sleep(key, number, wanted, moment)

    def wait(
        self,
        options: StepOptions,
        events: str | Sequence[str],
        type: Any,
        timeout_seconds: float | None,
        ask: str | None,
    ) -> Logic[Any]:
        """Wait for an event, or for a person's answer."""
        names = [check_event(each) for each in ([events] if isinstance(events, str) else events)]
        if not names or (ask is not None and len(names) > 1):
            raise ConfigurationError(f"wait takes one event or several, and a question one, got {events!r}")
        if ask is not None and not ask:
            raise ConfigurationError("ask= is the question to a person, and was empty")
        seconds = None if timeout_seconds is None else seconds_of(timeout_seconds)
        key, number = self._take_key(options.name or names[0], options)
        values = ValueType(f"event {names[0]!r}", type, None)
        question = None if ask is None else {"question": ask, "schema": values.schema()}
        return self._wait(key, number, names, seconds, values, question)

    def run(self, options: StepOptions, call: Any, timeout_seconds: float | None) -> Logic[Any]:
        """Run a task as a child."""
        if not isinstance(call, BoundTask):
            raise ConfigurationError(f"ctx.run takes task.bind(...), got {call!r}")
        bound: BoundTask[Any] = call
        if bound.results:
            raise ConfigurationError("node.result is for tasks of a flow: flow.add(task.bind(node.result))")
        _refuse_unique(bound.new)
        seconds = None if timeout_seconds is None else seconds_of(timeout_seconds)
        key, number = self._take_key(options.name or bound.new.name, options)
        return self._run(key, number, bound, seconds)

    def map(
        self,
        options: StepOptions,
        task: Any,
        inputs: Iterable[Mapping[str, Any]],
        max_failures: int | None,
        timeout_seconds: float | None,
    ) -> Logic[Any]:
        """Run a task for each input."""
        if not isinstance(task, Submitter):
            raise ConfigurationError(f"ctx.map takes a task and its inputs, got {task!r}")
        if max_failures is not None and not _is_count(max_failures):
            raise ConfigurationError(f"max_failures is a whole number, 0 or more, or None, got {max_failures!r}")
        submitter: Submitter[Any, Any] = task
        seconds = None if timeout_seconds is None else seconds_of(timeout_seconds)
        key, number = self._take_key(options.name or submitter.definition.name, options)
        return self._map(key, number, submitter, inputs, max_failures, seconds)

    def spend(self, options: StepOptions, budget: str, cost: float) -> Logic[None]:
        """Take tokens from a budget."""
        check_budget(budget)
        if not is_amount(cost):
            raise ConfigurationError(f"the cost of ctx.spend is a number, 0 or more, got {cost!r}")
        key, number = self._take_key(options.name or budget, options)
        return self._spend(key, number, budget, float(cost))

    # --- The logic.

    def _step(self, key: str, number: int, options: StepOptions, call: Call) -> Logic[Any]:
        found = yield from self._find(key, "step", digest := digest_of(call.function, call.args, call.kwargs))
        values = ValueType(f"step {key!r}", return_annotation(call.function), self._max_value_bytes)
        if found is not None and found.state == "done":
            return values.read(found.value)
        if found is not None and found.state == "failed":
            raise self._failure(key, found.error or {})
        tries = 0 if found is None else found.tries
        if found is not None:
            yield from self._pause(key, self._left(found))
        while True:
            started = self._timing.monotonic()
            row = self._row(key, number, "step", digest, tries)
            try:
                if options.transactional:
                    return (yield from self._transact(call, row, values, started))
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
            # It may be committed: the next attempt finds out.
            raise Retry(reason=f"the transaction of step {row['key']!r} was broken off: {error}") from error
        text, read = answer
        self._remember(row | {"state": "done", "value": loads(text)})
        return read

    def _sleep(self, key: str, number: int, wanted: float | None, moment: datetime | None) -> Logic[None]:
        found = yield from self._find(key, "sleep", None)
        if found is None:
            if wanted is None:
                now = yield Ask("now")
                assert moment is not None
                wanted = max(0.0, moment.timestamp() - now)
            if wanted < SHORT_SLEEP:
                yield Rest(wanted)
                return
            row = self._row(key, number, "sleep", None, 0) | {"until_in": wanted}
            yield from self._record(row, self._timing.monotonic())
            yield Park("sleep", key, wanted)
        left = self._left(found) if found is not None else 0.0
        if left > 0:
            if left < SHORT_SLEEP:
                yield Rest(left)
            else:
                yield Park("sleep", key, left)

    def _wait(
        self,
        key: str,
        number: int,
        events: Sequence[str],
        seconds: float | None,
        values: ValueType,
        question: Mapping[str, Any] | None,
    ) -> Logic[Any]:
        kind = "wait" if question is None else "ask"
        found = yield from self._find(key, kind, None)
        if found is None:
            # First the open step, committed; then a look for the event: whoever tells it now finds the one or is found.
            row = self._row(key, number, kind, None, 0) | {"until_in": seconds, "ask": question}
            told = list(events) if question is None else []
            yield Ask("open_wait", {"step": self._finished(row, self._timing.monotonic()), "events": told})
            self._remember(row)
        elif found.state != "open":
            return self._waited(key, found.state, found.value, values)
        answer = yield Ask("take", {"key": key, "events": list(events) if question is None else []})
        if answer["state"] != "open":
            self._remember(self._row(key, number, kind, None, 0) | {"state": answer["state"], "value": answer["value"]})
            return self._waited(key, answer["state"], answer["value"], values)
        waits_for = f"answer {key}" if question is not None else f"event {' | '.join(events)}"
        yield Park(waits_for, key, answer["left"], fillable=True)
        raise AssertionError("a wait that was suspended goes on")

    @staticmethod
    def _waited(key: str, state: str, value: Any, values: ValueType) -> Any:
        if state == "failed":
            raise WaitTimeout(None, 0.0, "waiting", step=key)
        return values.read(value)

    def _run(self, key: str, number: int, call: BoundTask[Any], seconds: float | None) -> Logic[Any]:
        digest = digest_of(call.submitter.definition.function, (), {"kwargs": call.new.kwargs})
        found = yield from self._find(key, "run", digest)
        values = ValueType(
            f"task {call.new.name!r}", return_annotation(call.submitter.definition.function), self._max_value_bytes
        )
        if found is None:
            group = str(uuid4())
            row = self._row(key, number, "run", digest, 0) | {"until_in": seconds, "value": {"group": group}}
            rows = rows_of([self._child(call.new, group, 0)])
            opened = {"id": group, "sealed": True, "max_failures": None}
            step = self._finished(row, self._timing.monotonic())
            yield Ask("open_group", {"step": step, "group": opened, "rows": rows})
            self._remember(row)
        elif found.state != "open":
            return self._ended_child(key, found.state, found.value, found.error, values)
        else:
            yield Ask("restart_children", {"group": found.value["group"]})
        answer = yield from self._await_children(key, number, "run", call.new.name)
        return self._ended_child(key, answer["state"], answer["value"], answer["error"], values)

    def _map(
        self,
        key: str,
        number: int,
        task: Submitter[Any, Any],
        inputs: Iterable[Mapping[str, Any]],
        max_failures: int | None,
        seconds: float | None,
    ) -> Logic[Group[Any]]:
        found = yield from self._find(key, "map", None)
        if found is None:
            group = str(uuid4())
            row = self._row(key, number, "map", None, 0) | {"until_in": seconds, "value": {"group": group}}
            opened = {"id": group, "sealed": False, "max_failures": max_failures}
            step = self._finished(row, self._timing.monotonic())
            yield Ask("open_group", {"step": step, "group": opened, "rows": []})
            self._remember(row)
        elif found.state != "open":
            return self._group(key, found.state, found.value, found.error, task)
        else:
            group = found.value["group"]
            yield Ask("restart_children", {"group": group})
        stored = yield Ask("look_at_group", {"group": group})
        if not stored["sealed"]:
            yield from self._store_children(group, stored["total"], task, inputs)
            yield Ask("seal_group", {"group": group})
        answer = yield from self._await_children(key, number, "map", task.definition.name)
        return self._group(key, answer["state"], answer["value"], answer["error"], task)

    def _spend(self, key: str, number: int, budget: str, cost: float) -> Logic[None]:
        digest = digest_of(Engine.spend, (budget, cost), {})
        found = yield from self._find(key, "spend", digest)
        if found is not None and found.state == "done":
            return
        tries = 0 if found is None else found.tries
        for rested in (False, True):
            row = self._row(key, number, "spend", digest, tries + 1)
            step = self._finished(row, self._timing.monotonic())
            answer = yield Ask("spend", {"step": step, "name": budget, "cost": cost})
            if answer["state"] not in ("open", "done"):
                raise _not_affordable(budget, cost, answer)
            self._remember(row | {"state": answer["state"]})
            if answer["state"] == "done":
                return
            if answer["seconds"] >= SHORT_SLEEP or rested:
                # Many may wait for the same tokens: who was short before comes back later, and not with all others.
                spread = min(LONGEST_SPREAD, 2.0 ** min(tries, 20) * cost / answer["rate"]) if tries else 0.0
                yield Park(f"budget {budget}", key, answer["seconds"] + random.uniform(0.0, spread))
            yield Rest(answer["seconds"])

    def _store_children(
        self, group: str, stored: int, task: Submitter[Any, Any], inputs: Iterable[Mapping[str, Any]]
    ) -> Logic[None]:
        """Store children chunk by chunk, after those that an earlier attempt has stored."""
        index = 0
        rows = iter(inputs)
        while chunk := list(itertools.islice(rows, CHUNK)):
            skipped = max(0, min(len(chunk), stored - index))
            new = [
                self._child(task.bind_row(position, row), group, position)
                for position, row in enumerate(chunk[skipped:], index + skipped)
            ]
            if new:
                total = yield Ask("add_members", {"group": group, "before": index + skipped, "rows": rows_of(new)})
                if total != index + len(chunk):
                    raise self._mismatch("map", f"a map with {total} inputs stored", f"{index + len(chunk)}")
            index += len(chunk)
        if index < stored:
            raise self._mismatch("map", f"a map with {stored} inputs stored", f"one with {index} inputs")

    def _await_children(self, key: str, number: int, kind: str, name: str) -> Logic[dict[str, Any]]:
        answer: dict[str, Any] = yield Ask("take", {"key": key, "events": []})
        if answer["state"] == "open":
            yield Park(f"children {name}", key, answer["left"], fillable=True)
        names = {each: answer[each] for each in ("state", "value", "error")}
        self._remember(self._row(key, number, kind, None, 0) | names)
        return answer

    def _child(self, new: NewTask, group: str, index: int) -> NewTask:
        """The child as it is stored: with an id that a repeated request gives again, and its parent's priority."""
        _refuse_unique(new)
        priority = new.priority or self.context.task.priority
        return replace(new, id=uuid5(UUID(group), str(index)), priority=priority)

    @staticmethod
    def _ended_child(key: str, state: str, value: Any, error: Mapping[str, Any] | None, values: ValueType) -> Any:
        if state == "done":
            return values.read(value.get("result"))
        raise _not_completed(key, error or {})

    def _group(
        self, key: str, state: str, value: Any, error: Mapping[str, Any] | None, task: Submitter[Any, Any]
    ) -> Group[Any]:
        if state != "done":
            raise _not_completed(key, error or {})
        assert self.database is not None
        function = task.definition.function
        values = ValueType(f"task {task.definition.name!r}", return_annotation(function), None)
        counts = {name: value[name] for name in ("total", "failed", "cancelled")}
        return Group(value["group"], **counts, database=self.database, read=values.read)

    # --- How the attempt ends.

    def suspend(self, parked: Sequence[Park]) -> None:
        """Decide that the attempt ends in these waits; the first deadline counts."""
        deadlines = [each.seconds for each in parked if each.seconds is not None]
        self.suspension = Ending.suspend(
            self.task.id,
            self.task.version,
            waits_for=parked[0].waits_for,
            delay=min(deadlines, default=None),
            on=tuple(each.key for each in parked if each.fillable),
        )

    # --- Keys and records.

    def _take_key(self, name: str, options: StepOptions) -> tuple[str, int]:
        if self.suspension is not None:
            raise Suspended
        if self.mismatch is not None:
            raise self.mismatch
        if isinstance(current_context(None), StepContext):
            raise ContextError(
                f"step {name!r} is asked for inside another step; call steps one after the other in the task's function"
            )
        if self._is_transactional:
            raise ContextError(
                f"task {self.task.name!r} is transactional as a whole, and so cannot record steps; leave out "
                "transactional=True and write ctx.options(transactional=True).step(...) where a step needs it"
            )
        if len(name) > MAX_KEY:
            raise ConfigurationError(f"the name of a step has at most {MAX_KEY} characters, got {name[:40]!r}…")
        with self._lock:
            self._numbers += 1
            if self._numbers > MOST_STEPS:
                raise Abort(f"more than {MOST_STEPS:,} steps in one run; raise task.restart(...) to begin anew")
            return self._key(name, options), self._numbers

    def _key(self, name: str, options: StepOptions) -> str:
        if options.key is not None:
            key = f"{name}:{options.key}"
            if key in self._keys:
                raise StepKeyError(
                    f"the key {options.key!r} was used twice for steps named {name!r}; each needs its own"
                )
            self._keys.add(key)
            return key
        user = _caller()
        if self._users.setdefault(name, user) is not user:
            raise StepKeyError(
                f"steps named {name!r} are made by more than one asyncio task or thread, and could not be told apart "
                f"when the function runs again; give each a key: ctx.options(key=...).step(...)"
            )
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def _find(self, key: str, kind: str, digest: str | None) -> Logic[Record | None]:
        """What is recorded under the key; if the code asks for something else, the task is parked."""
        if self._records is None:
            answer = yield Ask("load")
            self._loaded_at = self._timing.monotonic()
            self._records = {each["key"]: Record.of(each) for each in answer}
        found = self._records.get(key)
        if found is None:
            return None
        if found.kind != kind:
            raise self._mismatch(key, f"a {found.kind}", f"a {kind}")
        if digest is not None and found.digest is not None and digest != found.digest and found.state != "open":
            if self._is_repeated(key):
                raise self._mismatch(key, f"a call with the arguments {found.digest}", f"other arguments, {digest}")
            if found.note is None:
                found.note = "the code now gives other arguments than recorded"
                yield Ask("note", {"key": key, "note": found.note})
        return found

    def _mismatch(self, key: str, recorded: str, asked: str) -> NonDeterminism:
        """Whatever the function makes of it, the attempt ends here."""
        self.mismatch = NonDeterminism(key, recorded, asked)
        return self.mismatch

    def _is_repeated(self, key: str) -> bool:
        """Whether it is one of several of a name that only their order tells apart."""
        assert self._records is not None
        name, mark, count = key.rpartition("#")
        return bool(mark and name and count.isdigit() and ":" not in name) or f"{key}#2" in self._records

    def _left(self, found: Record) -> float:
        """Seconds until the step's moment."""
        return 0.0 if found.left is None else found.left - (self._timing.monotonic() - self._loaded_at)

    @staticmethod
    def _row(key: str, number: int, kind: str, digest: str | None, tries: int) -> dict[str, Any]:
        return {"key": key, "number": number, "kind": kind, "state": "open", "digest": digest, "tries": tries}

    def _record(self, row: dict[str, Any], started: float) -> Logic[None]:
        yield Ask("record", self._finished(row, started))
        self._remember(row)

    def _finished(self, row: dict[str, Any], started: float) -> dict[str, Any]:
        return row | {"started_ago": self._timing.monotonic() - started, "ended": row["state"] != "open"}

    def _of_task(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"task_id": self.task.id, "version": self.task.version}

    def _remember(self, row: dict[str, Any]) -> None:
        assert self._records is not None
        names = ("key", "number", "kind", "state", "digest", "value", "error", "tries")
        self._records[row["key"]] = Record(**{name: row[name] for name in names if name in row})
        self.task.marks |= HAS_STEPS
        if row["state"] == "done":
            self.task.retry_count = 0  # Progress starts the retries anew, here as in the table.

    # --- Failures of a step.

    def _fail(self, row: dict[str, Any], error: Exception, tries: int, started: float) -> Logic[StepFailed]:
        message = self.context.hide.text(str(error)) or ""
        shown = {"type": type(error).__name__, "message": message[:ERROR_CHARACTERS]}
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
            yield Park(f"retry {key}", key, left)
        elif left > 0:
            yield Rest(left)


def _not_completed(key: str, error: Mapping[str, Any]) -> Exception:
    """Why the children did not end as they should."""
    if error.get("type") == "WaitTimeout":
        return WaitTimeout(None, 0.0, "waiting", step=key)
    child = error.get("child")
    failed = TaskFailed(EndedChild(**child) if child else EndedChild(name=key, error=error.get("message", "")))
    failed.step = key
    return failed


def _not_affordable(budget: str, cost: float, answer: Mapping[str, Any]) -> ConfigurationError:
    if answer["state"] == "refused":
        return ConfigurationError(
            f"budget {budget!r} holds at most {answer['burst']:,.10g} tokens, and {cost:,.10g} are asked for at once; "
            "spend less at a time, or set it with a higher burst="
        )
    return ConfigurationError(
        f"there is no budget {budget!r}; set it first: queue.set_budget({budget!r}, per_minute=...)"
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_unique(new: NewTask) -> None:
    if new.unique_key is not None:
        raise ConfigurationError(
            f"task {new.name!r} has the unique key {new.unique_key!r}, and a child belongs to its workflow alone; "
            "leave the key out, or submit it and wait for an event"
        )


@dataclass(frozen=True, slots=True)
class EndedChild:
    """A child that did not complete, as it was recorded."""

    name: str
    error: str | None = None
    id: Any = None
    state: str = "failed"
    kwargs: Any = None
    attempts: int = 0
    max_retries: int = 0
    result: Any = None

    @property
    def max_attempts(self) -> int:
        """How many attempts it could have had."""
        return self.max_retries + 1


def failed_step(error: BaseException) -> str | None:
    """The key of the step whose failure this is, itself or as its cause."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, StepFailed):
            return seen.key
        seen = seen.__cause__
    return None


def _caller() -> object:
    """The asyncio task or the thread that makes a call."""
    try:
        found = asyncio.current_task()
    except RuntimeError:
        found = None
    return threading.current_thread() if found is None else found
