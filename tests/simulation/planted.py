"""Bugs on purpose: each takes one safeguard out of the production code, and the simulator must notice.

They are patches of functions and of SQL texts, so that the code itself has no switches for tests.  One whose text is no
longer found fails at once: then the safeguard has moved, and the patch must follow.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any
from unittest import mock

from tasklib.core.time.clock import Clock
from tasklib.core.time.liveness import Sighting, Watch
from tasklib.service.http_workers.timeouts import TimeoutService
from tasklib.service.http_workers.upkeep import Upkeep
from tasklib.storage.operations import actions, attempts, workers
from tasklib.storage.operations.limits.names import HeldLimits
from tasklib.storage.run import steps
from tasklib.storage.statement import Operation
from tasklib.worker.execution.call import Caller
from tasklib.worker.execution.coroutines import Coroutines
from tasklib.worker.execution.held_tasks import HeldTasks
from tasklib.worker.execution.runner import Runner
from tasklib.worker.intake.claimer import Claimer
from tasklib.worker.recording.finisher import Finisher
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tasklib.worker.upkeep.recovery import Recovery
from tasklib.worker.upkeep.watch import LeaseRenewal
from tests.simulation import link, planted_controls, planted_workflows
from tests.simulation.breaking import NO_SELF_FENCE, Bug, both, nothing, replaced, schema, sql
from tests.simulation.link import Link

FENCE = "tasks.version = e.value ->> 'version'"


def _all_overdue(watch: Watch, seen: Sequence[Sighting], *, asked: float, answered: float) -> list[Sighting]:
    watch._last_look = answered
    return [sighting for sighting in seen if sighting.is_overdue]


@contextmanager
def _recovery_right_after_outages() -> Generator[None]:
    """Neither a gap between looks nor a gap of the own heartbeat starts the observation anew."""
    with (
        mock.patch("tasklib.core.time.liveness.LONGEST_GAP", 1e9),
        mock.patch.object(Heartbeat, "is_steady", property(lambda self: True)),
    ):
        yield


def _clock_of_client() -> AbstractContextManager[Any]:
    made = Link.__init__

    def make(new: Link, *args: Any) -> None:
        made(new, *args)
        new.clock = new.skewed_clock()

    return mock.patch.object(Link, "__init__", make)


def _forgetful() -> Operation[dict[str, Any]]:
    return {}
    yield


async def _persist_once(finisher: Finisher, batch: Any) -> None:
    """One try, and after an error what had ended is forgotten."""
    try:
        await finisher._send(batch, again=False)
    except Exception:  # noqa: BLE001  the bug
        return


def _completion_not_checked(caller: Caller, task: Any, result: Any, started: float, context: Any) -> Operation[None]:
    text = attempts.dumps({"value": result})
    now = caller._queue.timing.monotonic()
    yield from attempts.complete_tasks([attempts.Completion(task.id, task.version, text, started, now)])


class _Stopped:
    """A clock that shows one time."""

    def __init__(self, time: datetime | None) -> None:
        self._time = time

    def now(self) -> datetime | None:
        """That time."""
        return self._time


def _steps_at_once(operation: Operation[Any], translate: Any, clock: Clock, memory: dict[str, Any]) -> Any:
    return steps(operation, translate, _Stopped(clock.now()), memory)


_care = Upkeep.care


async def _care_and_recover(upkeep: Upkeep) -> None:
    """Whoever is overdue by the database's clock is dead."""
    await _care(upkeep)
    await upkeep.database.arun(lambda: workers.recover_stale(upkeep.queue.config.backoff))


def _renewnothing(instance: Any, lease_seconds: float) -> Operation[int]:
    return 0
    yield


BUGS: dict[str, Bug] = {
    "a completion needs no version": both(sql("complete_tasks", f"AND {FENCE}", ""), NO_SELF_FENCE),
    "a completion needs no running task": sql("complete_tasks", "AND tasks.state = 'running'", ""),
    "a release counts as an attempt": sql("end_attempts", "attempts - (e.value ->> 'refund')", "attempts"),
    "a loss is not counted": sql("end_attempts", "+ (e.value ->> 'lost')", "+ 0"),
    "a retry is counted twice": sql(
        "end_attempts", "ELSE (e.value ->> 'retried') END", "ELSE 2 * (e.value ->> 'retried') END"
    ),
    "an outage is taken for silence": _recovery_right_after_outages,
    "a clock step is taken for silence": replaced(Watch, "note", _all_overdue),
    "the clock is the client's": _clock_of_client,
    "tasks of a lost answer are not looked for": replaced(Claimer, "release_strays", nothing),
    "a repeated act does not know its first try": replaced(actions, "recall", _forgetful),
    "a version is counted in the row": sql(
        "claim_tasks", "(SELECT v.last FROM tasklib_versions AS v)", "0 * (SELECT v.last FROM tasklib_versions AS v)"
    ),
    "a slot is not given back": replaced(HeldTasks, "finished", lambda self, attempt: self._ended.set()),
    "a key is not given back": schema("DROP TRIGGER tasks_hint_free"),
    "a tick is fired twice": sql("move_schedule", "version = :version", "1"),
    "a pause is not asked": sql("claim_tasks", "c.paused_at IS NOT NULL)", "0)"),
    "the number that run is not asked": replaced(
        HeldLimits, "_left", lambda self, limit, most: most if limit.tokens is None else int(limit.tokens)
    ),
    "a token is not spent": sql("spend_tokens", "- used.count", "- 0 * used.count"),
    "two tasks have one unique key": schema("DROP INDEX tasks_live_key"),
    "nobody ends its own work in time": NO_SELF_FENCE,
    "nobody recovers": replaced(Recovery, "step", nothing),
    "retention does not look at the age": sql("sweep_tasks", "> coalesce(", "> -1e9 + 0 * coalesce("),
    "a transaction goes by the time at which it began to wait": replaced(link, "steps", _steps_at_once),
    "a full slot keeps the loop busy": replaced(Runner, "has_next", lambda self, executor: True),
    "a batch ends without a successor": replaced(Coroutines, "start", lambda self, runner: None),
    "leases are not renewed": replaced(LeaseRenewal, "step", nothing),
    "an ending needs no version": both(sql("end_attempts", f"AND {FENCE}", ""), NO_SELF_FENCE),
    "a claim under way is not refused": sql("claim_tasks", "AND me.generation = :generation", ""),
    "an outcome is tried to be written once": replaced(Finisher, "_persist", _persist_once),
    "a free key is told to nobody who is not due": sql("spread_hints", "OR NOT EXISTS", "OR 0 * EXISTS"),
    "effects of a lost attempt stay": both(replaced(Caller, "_complete", _completion_not_checked), NO_SELF_FENCE),
    "a lost answer to COMMIT is a failure": sql("end_attempts", "AND tasks.state = 'running'", ""),
    "the HTTP service recovers by one look": replaced(Upkeep, "care", _care_and_recover),
    "a heartbeat over HTTP renews nothing": replaced(workers, "renew_held", _renewnothing),
    "no timeout of a task over HTTP is watched": replaced(TimeoutService, "watch", lambda self: None),
    **planted_controls.BUGS,
    **planted_workflows.BUGS,
}

SYMPTOMS = {
    "a completion needs no version": "which it no longer is",
    "an ending needs no version": "was ended by what was meant for",
    "effects of a lost attempt stay": "effects and was completed",
}
"""What must be noticed, where another promise is broken by the same bug."""
