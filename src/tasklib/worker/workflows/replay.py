"""Replaying a workflow's records with today's code, without running a step: does it match, and where would it continue?

The function runs from the top, as after a crash.  Recorded steps return their values.  It stops at the first call
that is not recorded: a step to run, or something to wait for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from tasklib.core.calls.context import context_class
from tasklib.core.calls.current import activate
from tasklib.core.calls.signals import Suspended
from tasklib.core.task import Task
from tasklib.core.texts.error_text import bounded
from tasklib.core.time.timing import SystemTiming
from tasklib.definition import Definition
from tasklib.storage.database import HasDatabase
from tasklib.storage.operations.workflows.marks import HAS_STEPS
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.workflows.drivers import AwaitingWorkflow, BlockingWorkflow, WorkflowSettings
from tasklib.worker.workflows.effects import Call, Effect, Logic, Request, Suspend, Transact, WaitInSlot
from tasklib.worker.workflows.engine import Engine
from tasklib.worker.workflows.records import OF_CHILDREN, Record

PATIENCE_SECONDS: Final = 30.0
"""How long a coroutine may await something other than steps before the replay gives up."""
ERROR_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of replaying the records of one task with today's code."""

    fits: bool
    key: str | None = None
    """The step at which it differs, or at which it would continue."""
    recorded: str | None = None
    """What is recorded there."""
    asked: str | None = None
    """What the code does there."""
    notes: Sequence[str] = ()
    """Differences that are allowed but may surprise: other arguments, steps that are no longer used."""


@dataclass(slots=True)
class _Seen:
    """What one replay has seen: the keys asked for, where it stopped, and notes."""

    asked: set[str] = field(default_factory=set[str])
    frontier: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])


class _ReplayEngine(Engine):
    """The engine, which also remembers the keys that were asked for."""

    seen: _Seen

    def _find(self, key: str, kind: str, digest: str | None) -> Logic[Record | None]:
        self.seen.asked.add(key)
        return (yield from super()._find(key, kind, digest))


class _NoJournal:
    """Answers from the recorded steps and records nothing: the first request that would record ends the replay."""

    def __init__(self, steps: Sequence[Mapping[str, Any]], seen: _Seen) -> None:
        self._steps = steps
        self._seen = seen
        self._groups = {_group(step): step["key"] for step in steps if _group(step) is not None}

    def answer(self, effect: Effect) -> tuple[bool, Any]:
        """Whether the replay continues, and with which answer."""
        match effect:
            case Request("load"):
                return True, self._steps
            case Request("now"):
                return True, time.time()
            case Request("note", params):
                self._seen.notes.append(f"step {params['key']!r}: {params['note']}")
                return True, None
            case WaitInSlot():
                return True, None
            case Request(name, params):
                self._seen.frontier.append((self._key(params), name))
            case Call(key):
                self._seen.frontier.append((key, "step"))
            case Transact(call):
                self._seen.frontier.append((call.key, "step"))
            case Suspend(waits_for, key):
                self._seen.frontier.append((key, waits_for))
            case _:
                assert_never(effect)
        return False, None

    def _key(self, params: Mapping[str, Any]) -> str:
        if "step" in params:
            return str(params["step"]["key"])
        return str(params.get("key") or self._groups.get(params.get("group")) or "")

    async def ask(self, task: ClaimedTask, request: Request) -> Any:
        """Never called: the replay's drivers use `answer`."""
        raise AssertionError(request.name)

    def ask_blocking(self, task: ClaimedTask, request: Request) -> Any:
        """Never called: the replay's drivers use `answer`."""
        raise AssertionError(request.name)


class _Awaiting(AwaitingWorkflow):
    journal: _NoJournal

    async def _do(self, effect: Effect) -> Any:
        goes_on, answer = self.journal.answer(effect)
        return answer if goes_on else await self._suspend(Suspend("replay", "", None))


class _Blocking(BlockingWorkflow):
    journal: _NoJournal

    def _do(self, effect: Effect) -> Any:
        goes_on, answer = self.journal.answer(effect)
        return answer if goes_on else self._suspend(Suspend("replay", "", None))


def replay(definition: Definition, task: Task, steps: Sequence[Mapping[str, Any]], storage: HasDatabase) -> Replayed:
    """Run the function against recorded steps; results of children are read in the database of `storage`."""
    seen, timing = _Seen(), SystemTiming()
    claimed = ClaimedTask(
        [str(task.id), task.seq, task.version, task.attempts, task.max_retries, 0.0, task.name, task.kwargs, None],
        [0.0, 0.0],
    )
    claimed.marks = HAS_STEPS
    journal = _NoJournal(steps, seen)
    context = context_class(definition.is_async)(task, workflow=lambda: workflow)
    engine = _ReplayEngine(claimed, context, timing, max_value_bytes=2**40, is_transactional=False)
    engine.seen = seen
    kind = _Awaiting if definition.is_async else _Blocking
    workflow = kind(engine, journal, storage, WorkflowSettings(timing))
    workflow.journal = journal
    try:
        result = _run(definition, task, context)
    except Suspended:
        pass
    except BaseException as error:  # noqa: BLE001  whatever the user's function raised
        if engine.mismatch is None and engine.suspension is None:
            return _raised(error, steps, seen)
    else:
        if engine.mismatch is None and engine.suspension is None:
            return _returned(result, steps, seen)
    if engine.mismatch is not None:
        found = engine.mismatch
        return Replayed(False, found.key, found.recorded, found.asked, seen.notes)
    key, what = seen.frontier[0] if seen.frontier else ("", "")
    open_key = next((step["key"] for step in steps if step["state"] == "open"), None)
    return Replayed(True, key or open_key, None, what, [*seen.notes, *_unused(steps, seen)])


def _run(definition: Definition, task: Task, context: Any) -> Any:
    args, kwargs = definition.call_with(task.kwargs, context)
    with activate(context):
        if not definition.is_async:
            return definition.function(*args, **kwargs)

        async def within_time() -> Any:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await definition.function(*args, **kwargs)

        return asyncio.run(within_time())


def _raised(error: BaseException, steps: Sequence[Mapping[str, Any]], seen: _Seen) -> Replayed:
    if isinstance(error, TimeoutError) and not str(error):
        asked = f"something that is no step, and has not come in {PATIENCE_SECONDS:g} s"
    else:
        asked = f"{type(error).__name__}: {bounded(str(error), ERROR_CHARACTERS)}"
    key, recorded = _open(steps)
    return Replayed(False, key, recorded, asked, seen.notes)


def _returned(result: Any, steps: Sequence[Mapping[str, Any]], seen: _Seen) -> Replayed:
    key, recorded = _open(steps)
    note = "the code ends without asking for it" if key is not None else "the code ends"
    return Replayed(True, key, recorded, "its end", [*seen.notes, note, *_unused(steps, seen)])


def _open(steps: Sequence[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    """The step at which the task waits, and what it is."""
    found = next((step for step in steps if step["state"] == "open"), None)
    return (None, None) if found is None else (found["key"], f"a {found['kind']}, open")


def _unused(steps: Sequence[Mapping[str, Any]], seen: _Seen) -> list[str]:
    unused = [step["key"] for step in steps if step["key"] not in seen.asked]
    return [f"recorded and not used any more: {', '.join(unused[:10])}"] if unused else []


def _group(step: Mapping[str, Any]) -> str | None:
    value = step["value"]
    return value.get("group") if step["kind"] in OF_CHILDREN and isinstance(value, dict) else None
