"""One body on the way to a cluster engine or there: what is known of it, and what its reports and its end mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Raised, completed, decide
from tasklib.core.texts.error_text import summary
from tasklib.errors import ProcessDied, ProcessNotReady, Snooze
from tasklib.worker.execution.attempt import Attempt, AttemptRunner
from tasklib.worker.execution.processes.import_path import Address
from tasklib.worker.execution.processes.log_forwarding import show
from tasklib.worker.execution.running_attempt import Ended, StopReason


@dataclass(eq=False, slots=True)
class Body:
    """An attempt, on its way to the cluster or there."""

    key: str
    """Its task and version: no two bodies ever have the same."""
    attempt: Attempt
    runner: AttemptRunner
    address: Address
    resources: Mapping[str, Any]
    handle: Any = None
    """The engine's own reference to it; None until it is sent."""
    pid: int = 0
    """The process that runs it, on its machine."""
    has_begun: bool = False
    is_ending: bool = False
    is_lost: bool = False
    """Whether nothing can be asked of it any more: its attempt ends when it has certainly ended by itself."""
    gone_at: float = 0.0
    """When a lost body has ended by itself, at the latest."""
    early: dict[int, list[Any]] = field(default_factory=dict)
    """Reports by number that have overtaken others."""
    passed_on: int = 0
    """How many reports have been passed on."""
    sent: int = 0
    """How many it had sent when it ended."""
    end: list[Any] | None = None
    """How it ended; not acted on before its last report is there."""

    @property
    def message(self) -> list[Any]:
        """What the node must know to run it."""
        return [self.attempt.task.fields, self.attempt.task.claim, list(self.address)]

    def receive(self, number: int, message: list[Any]) -> None:
        """Pass on a report, once all with lower numbers are there."""
        self.early[number] = message
        while (following := self.early.pop(self.passed_on, None)) is not None:
            self.passed_on += 1
            self._pass_on(following)

    def outcome(self, message: list[Any], engine: str) -> Ended:
        """How the attempt ended, from what the node or the engine says of its body."""
        attempt, task = self.attempt, self.attempt.task
        now = self.runner.settings.timing.monotonic()
        if attempt.stop_reason is StopReason.TIMED_OUT:
            return attempt.stopped()
        match message:
            case ["done", text, started, ended]:
                # Measured by another machine's clock: only the duration is comparable here.
                return completed(task, text, now - (ended - started), now, attempt.context.reported)
            case ["ended", event, delay, error, outcome, started, ended, *workflow]:
                took = 0.0 if started is None or ended is None else ended - started
                ending = Ending(task.id, task.version, Event(event), delay, error, outcome, None, None, *workflow)
                return ending.between(now - took, now)
            case ["unloadable", text, never]:
                why = f"could not load the task: {summary(text)}\n{text}"
                return attempt.raised(ProcessNotReady(why, never=never))
            case ["died", how, pid, code]:
                return attempt.raised(ProcessDied(how, pid=pid, code=code))
            case _ if attempt.stop_reason is None:
                return attempt.raised(ProcessDied(f"was ended by {engine}", pid=self.pid, code=-15))
            case _:
                return attempt.stopped()

    def postponed(self) -> Ended:
        """The task is postponed until its lost body has certainly ended; no attempt is spent."""
        settings = self.runner.settings
        now = settings.timing.monotonic()
        snooze = Raised(Snooze(delay=max(0.0, self.gone_at - now)))
        ending = decide(self.attempt.task, snooze, settings.retry_policy, self.attempt.definition.options)
        return ending.between(self.attempt.started, now)

    def _pass_on(self, message: list[Any]) -> None:
        match message:
            case ["log", record]:
                show(record)
            case ["at", int(pid), str()]:
                self.pid = pid
                self.has_begun = True
            case ["begun"]:
                self.attempt.begin()
                self.attempt.limit_time()
            case ["progress", _, fraction, text]:
                self.attempt.context.progress(fraction, text)
            case ["line", _, level, text]:
                self.attempt.context.keep_line(level, text)
            case _:
                pass
