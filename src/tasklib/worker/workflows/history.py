"""The history of a workflow as one run sees it: which call is which step, and what is recorded for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from tasklib.core.calls.context import StepContext, TaskContext
from tasklib.core.calls.current import current_context
from tasklib.core.calls.signals import Suspended
from tasklib.core.calls.steps import MAX_KEY, StepOptions
from tasklib.core.lifecycle import Ending
from tasklib.core.texts.error_text import bounded
from tasklib.core.time.timing import Timing
from tasklib.errors import Abort, ConfigurationError, ContextError, NonDeterminism, StepKeyError
from tasklib.storage.database import HasDatabase
from tasklib.storage.operations.workflows.marks import HAS_STEPS, note_recorded
from tasklib.storage.operations.workflows.steps import MOST_STEPS, step_row, timed
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.workflows.effects import Logic, Request
from tasklib.worker.workflows.records import Record

SHOWN_CHARACTERS: Final = 2000
"""How much of a question, and of the reason for a wait, is stored."""


class History:
    """The keys that this run has assigned, and the records of this and earlier runs."""

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
        self._highest = 0
        """The highest number of a step that earlier runs have recorded."""
        self.suspension: Ending | None = None
        """How the attempt ends, once that is decided; whatever the function does afterwards is ignored."""
        self.mismatch: NonDeterminism | None = None
        self._lock = threading.Lock()
        self.storage: HasDatabase | None = None
        """Has the database in which results of children are read; set by the driver."""

    def _to_show(self, text: str) -> str:
        """A text for lists and logs: redacted and bounded, because it may contain arguments."""
        return bounded(self.context.hide.text(text) or "", SHOWN_CHARACTERS)

    # --- Keys.

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
            return self._unused(
                f"{name}:{options.key}", f"the key {options.key!r} was used twice for steps named {name!r}"
            )
        user = _caller()
        if self._users.setdefault(name, user) is not user:
            raise StepKeyError(
                f"steps named {name!r} are made by more than one asyncio task or thread, and could not be told apart "
                f"when the function runs again; give each a key: ctx.options(key=...).step(...)"
            )
        count = self._counts[name] = self._counts.get(name, 0) + 1
        key = name if count == 1 else f"{name}#{count}"
        return self._unused(key, f"two steps would be recorded under {key!r}: one has the name or key of another")

    def _unused(self, key: str, problem: str) -> str:
        if key in self._keys:
            raise StepKeyError(f"{problem}; give each a name or a key of its own: ctx.options(name=..., key=...)")
        self._keys.add(key)
        return key

    # --- Records.

    def _find(self, key: str, kind: str, digest: str | None) -> Logic[Record | None]:
        """The record under the key; if the code asks for another kind of step, the task is parked."""
        if self._records is None:
            answer = yield Request("load")
            self._loaded_at = self._timing.monotonic()
            self._records = {each["key"]: Record.of(each) for each in answer}
            self._highest = max((each.number for each in self._records.values()), default=0)
        found = self._records.get(key)
        if found is None:
            return None
        if found.kind != kind:
            raise self._mismatch(key, _in_words(found.kind), _in_words(kind))
        if digest is not None and found.digest is not None and digest != found.digest and found.state != "open":
            if self._is_repeated(key):
                raise self._mismatch(key, f"a call with the arguments {found.digest}", f"other arguments, {digest}")
            if found.note is None:
                found.note = "the code now gives other arguments than recorded"
                yield Request("note", {"key": key, "note": found.note})
        return found

    def _mismatch(self, key: str, recorded: str, asked: str) -> NonDeterminism:
        """Park the task because its code does not match the record, even if the function catches the error."""
        self.mismatch = NonDeterminism(key, recorded, asked)
        return self.mismatch

    def _is_repeated(self, key: str) -> bool:
        """Whether it is one of several steps with the same name that differ only in their order."""
        assert self._records is not None
        name, mark, count = key.rpartition("#")
        return bool(mark and name and count.isdigit() and ":" not in name) or f"{key}#2" in self._records

    def _unasked_waits(self) -> tuple[str, ...]:
        """Waits for events that an earlier run has recorded, and neither it nor this one has gone on with."""
        records = (self._records or {}).values()
        waits = [each for each in records if each.kind == "wait" and each.key not in self._keys]
        return tuple(each.key for each in waits if each.state == "open" or (each.state == "done" and not each.passed))

    def _left(self, found: Record) -> float:
        """Seconds until the step's deadline."""
        return 0.0 if found.left is None else found.left - (self._timing.monotonic() - self._loaded_at)

    def _row(self, key: str, number: int, kind: str, digest: str | None, tries: int) -> dict[str, Any]:
        if number <= self._highest:
            number += self._highest  # Changed code reaches it only after the recorded steps.
        return step_row(key, number, kind, digest, tries)

    def _record(self, row: dict[str, Any], started: float) -> Logic[None]:
        yield Request("record", self._finished(row, started))
        self._remember(row)

    def _finished(self, row: dict[str, Any], started: float) -> dict[str, Any]:
        return timed(row, self._timing.monotonic() - started)

    def _of_task(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"task_id": self.task.id, "version": self.task.version}

    def _remember(self, row: dict[str, Any]) -> None:
        assert self._records is not None
        names = ("key", "number", "kind", "state", "digest", "value", "error", "tries")
        before = self._records.get(row["key"])
        record = self._records[row["key"]] = Record(**{name: row[name] for name in names if name in row})
        record.has_undo = row.get("undo") is not None or (before is not None and before.has_undo)
        note_recorded(self.task, row)


def _caller() -> object:
    """The asyncio task or the thread that makes a call."""
    try:
        found = asyncio.current_task()
    except RuntimeError:
        found = None
    return threading.current_thread() if found is None else found


def _in_words(kind: str) -> str:
    return "a question" if kind == "ask" else f"a {kind}"
