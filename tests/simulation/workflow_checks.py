"""The promises of workflows, checked after every operation and at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tasklib.storage.rows import moment_text
from tasklib.storage.statement import Statement
from tests.simulation.ledger import StepOf, StepRun
from tests.simulation.loop import Process
from tests.simulation.records import Budget, Event, Group, Noted, RecordLog, Step
from tests.simulation.rows import Row
from tests.simulation.server import LONGEST_OPERATION_SECONDS
from tests.simulation.truth import short

if TYPE_CHECKING:
    from tests.simulation.checks import Checker

TOLERANCE = 0.05
"""Of a token: database and simulator count the same seconds with different roundings."""
ORPHANED_SECONDS = 15.0
"""After all faults: so soon every worker knows that a workflow has ended, and its children are cancelled."""
FACTS_KEPT_SECONDS = 2.0
OWN = frozenset({"run", "map"})
"""Kinds of groups whose members belong to a workflow."""


@dataclass(slots=True)
class WorkflowChecker:
    """Sees every change of every record, and compares it with what really happened."""

    checker: Checker
    steps: dict[tuple[str, str], Step] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    facts: set[str] = field(default_factory=set)
    messages: dict[int, Event] = field(default_factory=dict)
    events_of: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The events for which each step waits."""
    members: dict[str, set[str]] = field(default_factory=dict)
    """The children that each group ever had, by what was stored."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """The tasks before each task of a flow."""
    given: dict[str, str] = field(default_factory=dict)
    """Of each task of a flow, the one whose result it is given."""
    ended_badly: dict[str, float] = field(default_factory=dict)
    """When each task ended without success, unless it was retried since."""
    sleeps: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each sleep was recorded."""
    woken: set[str] = field(default_factory=set)
    """Tasks that were let run again by what was committed just now."""
    buckets: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    healed: float | None = None
    """When all faults were over."""
    log: RecordLog | None = None

    def attach(self) -> None:
        """Look at the database from now on."""
        assert self.checker.server is not None
        self.log = RecordLog(self.checker.server.connection)
        ledger = self.checker.truth.workflows
        ledger.on_step, ledger.on_sleep = self._step_begins, self._sleep_ends
        ledger.on_group, ledger.broken = self._group_is_told, self.checker.broken

    def committed(self, process: Process, statements: Sequence[Statement]) -> None:
        """After every operation, and after the rows of tasks were looked at."""
        assert self.log is not None
        noted = self.log.take()
        self._check_woken(statements, noted)
        if not noted:
            return
        self._note_waits(statements)
        spent: dict[str, float] = {}
        for kind, change in noted:
            if kind is Step:
                self._check_step(process, statements, change)
                self._note_cost(change, spent)
            elif kind is Event:
                self._check_event(change)
            elif kind is Group:
                self._check_group(change)
        for kind, change in noted:
            if kind is Budget:
                self._check_budget(statements, change, spent)

    def _check_woken(self, statements: Sequence[Statement], noted: Sequence[tuple[type[Any], Noted[Any]]]) -> None:
        """Nobody is woken for nothing: a step that it waited for has ended."""
        woken, self.woken = self.woken, set()
        if woken and _has(statements, "wake_tasks") and not _has(statements, "retry_tasks"):
            ended = {change.new.task_id for kind, change in noted if kind is Step and change.new is not None}
            for task_id in sorted(woken - ended):
                self._broken(f"{short(task_id)} was woken, and nothing that it waited for has come")

    def row_changed(self, old: Row | None, new: Row | None) -> None:
        """A task's row has changed: note who is whose child, and who ended without success."""
        row = new or old
        assert row is not None
        waited = "" if old is None else old.waits_for or ""
        if new is not None and new.is_live and waited and not new.waits_for and not waited.startswith("prerequisites"):
            self.woken.add(row.id)
        if old is None and row.group_id is not None:
            self.members.setdefault(row.group_id, set()).add(row.id)
        if new is None or new.is_live or new.state == "completed":
            self.ended_badly.pop(row.id, None)
        elif old is None or old.is_live:
            self.ended_badly[row.id] = self._now
        if new is not None and new.state == "cancelled":
            self.given.pop(new.id, None)  # A person who lets it run all the same gives it nothing.
        if new is not None and (new.waits_for or "").startswith("code"):
            self._broken(f"{new.name} {short(new.id)} waits for other code, and there is none")

    def claimed(self, new: Row, what: str) -> None:
        """A child does not run whose workflow has ended without success; a task of a flow runs with what it was to be
        given."""
        if new.group_id is None or self.healed is None:
            return
        group = self.groups.get(new.group_id)
        if group is None or group.kind not in OWN:
            return
        since = max(self.healed, self.ended_badly.get(group.task_id, float("inf")))
        if self._now - since > ORPHANED_SECONDS:
            self._broken(
                f"{what} is run, and its workflow {short(group.task_id)} has ended {self._now - since:.0f} s ago"
            )

    @property
    def _now(self) -> float:
        return self.checker.truth.loop.now

    def _broken(self, text: str) -> None:
        self.checker.broken(text)

    def _note_waits(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if statement.name == "open_waits":
                key = str(statement.params["id"]), str(statement.params["key"])
                self.events_of[key] = json.loads(str(statement.params["events"]))

    # steps

    def _check_step(self, process: Process, statements: Sequence[Statement], change: Noted[Step]) -> None:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            self.steps.pop((old.task_id, old.key), None)
            row = self.checker.rows.get(old.task_id)
            begins_anew = old.state == "failed" and old.kind in ("wait", "ask") and _has(statements, "reopen_steps")
            if row is not None and not begins_anew and not _has(statements, "forget_steps"):
                self._broken(f"{_what(old)} was removed, and its task is there")
            return
        self.steps[new.task_id, new.key] = new
        if new.kind == "sleep" and (old is None or old.version != new.version):
            self.sleeps[new.task_id, new.key] = self._now
        self.checker.history.add(process, f"{_what(new)} {new.kind} is {new.state} {new.value or ''}"[:120])
        if old is not None and old.state == "done" and (new.state, new.value) != (old.state, old.value):
            self._broken(f"{_what(new)} was done with {old.value}, and is {new.state} with {new.value}")
        if old is None or (old.version, old.state) != (new.version, new.state):
            self._check_writer(process, statements, new)
        if new.state == "done" and (old is None or old.state != "done"):
            self._check_done(new)
        if new.state == "failed" and (old is None or old.state != "failed"):
            self._check_failed(statements, new)

    def _check_writer(self, process: Process, statements: Sequence[Statement], new: Step) -> None:
        """Only the attempt that holds the task records; others fill what is open, and reopen what failed."""
        if _has(statements, "fill_steps") or _has(statements, "reopen_steps"):
            return
        row = self.checker.rows.get(new.task_id)
        claim = self.checker.claims.get((new.task_id, new.version))
        if row is None or claim is None or row.version != new.version or row.state != "running":
            state = "is gone" if row is None else f"is {row.phase} v{row.version}"
            self._broken(f"{_what(new)} was recorded by {process} under v{new.version}, and its task {state}")

    def _check_done(self, new: Step) -> None:
        value = json.loads(new.value) if new.value else None
        if new.kind == "step":
            run = self.checker.truth.workflows.runs[value] if isinstance(value, int) else None
            if run is None or (run.task_id, run.version, run.returned) != (new.task_id, new.version, True):
                self._broken(f"{_what(new)} was recorded with {value!r}, which no run under v{new.version} returned")
            if new.key.startswith("effect:"):
                self._check_effect(new, 1)
        elif new.kind == "wait":
            self._check_told(new, value)

    def _check_effect(self, step: Step, wanted: int) -> None:
        assert self.checker.server is not None
        found = self.checker.server.connection.execute(
            "SELECT count(*) FROM step_effects WHERE task_id = ? AND key = ?"
            " AND life = (SELECT coalesce(max(life), 0) FROM step_effects WHERE task_id = ? AND key = ?)",
            (step.task_id, step.key, step.task_id, step.key),
        ).fetchone()[0]
        if found != wanted:
            self._broken(f"{_what(step)} is {step.state} and has {found} effects")

    def _check_told(self, new: Step, value: Any) -> None:
        """A message is taken once and in order, and a fact was told."""
        if not isinstance(value, dict):
            self._broken(f"{_what(new)} was given {value!r}, which nobody told")
        elif "fact" in value:
            if value["fact"] not in self.facts:
                self._broken(f"{_what(new)} was given the fact {value['fact']}, which nobody told")
        else:
            self._check_message(new, value["message"])

    def _check_message(self, new: Step, number: int) -> None:
        mine = [event for event in self.messages.values() if event.task_id == new.task_id]
        taken = next((event for event in mine if json.loads(event.payload)["message"] == number), None)
        if taken is None:
            self._broken(f"{_what(new)} was given the message {number}, which nobody sent to it")
            return
        others = [
            step
            for step in self.steps.values()
            if step.kind == "wait" and step.state == "done" and step.value == new.value and step.key != new.key
        ]
        if others:
            self._broken(f"{_what(new)} took the message {number}, which {_what(others[0])} had taken")

    def _check_failed(self, statements: Sequence[Statement], new: Step) -> None:
        """Nobody gives up waiting before the time, nor for a fact that is there."""
        if new.kind not in ("wait", "ask"):
            return
        assert self.checker.server is not None
        latest = moment_text(self.checker.server.latest_now() + timedelta(milliseconds=2))
        if new.until is None or new.until > latest:
            self._broken(f"{_what(new)} gave up waiting before {new.until}")
        known = self.facts & set(self.events_of.get((new.task_id, new.key), ()))
        if known:
            self._broken(f"{_what(new)} gave up waiting for {sorted(known)}, which was told")

    def _step_begins(self, run: StepRun, step: StepOf) -> None:
        """What is recorded is not run again by who could know."""
        task_id, _, key = step
        found, row = self.steps.get((task_id, key)), self.checker.rows.get(task_id)
        if found is None or row is None or found.state != "done":
            return
        if row.state == "running" and row.version == run.version:
            self._broken(f"{_what(found)} is done, and {run.process} runs it again under v{run.version}")

    def _sleep_ends(self, task_id: str, key: str, seconds: float) -> None:
        assert self.checker.server is not None
        began = self.sleeps.get((task_id, key))
        if began is None or self.checker.server.clock_steps:
            return
        if self._now - began < seconds - LONGEST_OPERATION_SECONDS:
            self._broken(f"{key} of {short(task_id)} took {self._now - began:.1f} s instead of {seconds:g}")

    # events

    def _check_event(self, change: Noted[Event]) -> None:
        old, new = change.old, change.new
        event = new or old
        assert event is not None
        if event.task_id is None:
            if old is None:
                self.facts.add(event.name)
            elif new is None:
                self._check_removed_fact(old)
            return
        if new is None:
            self.messages.pop(event.id, None)
            return
        self.messages[new.id] = new
        if old is None or old.taken_by == new.taken_by:
            return
        if old.taken_by is not None:
            self._broken(f"message {new.id} was taken by {old.taken_by}, and again by {new.taken_by}")
        earlier = [
            each.id
            for each in self.messages.values()
            if (each.task_id, each.name, each.taken_by) == (new.task_id, new.name, None) and each.id < new.id
        ]
        if earlier:
            self._broken(f"message {new.id} to {short(new.task_id)} was taken before {earlier[0]}")

    def _check_removed_fact(self, fact: Event) -> None:
        """No task lives that may still wait for it: each was submitted long after the fact."""
        assert self.checker.server is not None
        self.facts.discard(fact.name)
        if self.checker.server.clock_steps:
            return
        latest = moment_text(datetime.fromisoformat(fact.created_at) + timedelta(seconds=FACTS_KEPT_SECONDS))
        for row in self.checker.rows.values():
            if row.is_live and row.created_at <= latest:
                self._broken(f"fact {fact.name} was removed, and {row.name} {short(row.id)} may still wait for it")

    # children and flows

    def _check_group(self, change: Noted[Group]) -> None:
        old, new = change.old, change.new
        if new is None:
            return
        self.groups[new.id] = new
        if new.ended > new.total:
            self._broken(f"group {short(new.id)} counts {new.ended} ended of {new.total}")
        if new.fired_at is None or (old is not None and old.fired_at == new.fired_at):
            return
        if new.kind in ("left", "gone"):  # Whoever waited for it does so no more, or was deleted: nobody is told.
            return
        if old is not None and old.fired_at is not None:
            self._broken(f"group {short(new.id)} of {short(new.task_id)} is told twice")
        self._check_told_group(new)

    def _check_told_group(self, group: Group) -> None:
        rows = self.checker.rows
        ids = self.before.get(group.task_id, []) if group.kind == "after" else self.members.get(group.id, set())
        lives = [task_id for task_id in ids if task_id in rows and rows[task_id].is_live]
        failed = sum(task_id in rows and rows[task_id].state in ("failed", "buried") for task_id in ids)
        cancelled = sum(task_id in rows and rows[task_id].state == "cancelled" for task_id in ids)
        gone = any(task_id not in rows for task_id in ids)
        is_too_much = group.max_failures is not None and group.failed + group.cancelled > group.max_failures
        if not is_too_much and (lives or not group.sealed or len(ids) != group.total):
            self._broken(
                f"group {short(group.id)} of {short(group.task_id)} is told with {len(ids)} of {group.total} stored, "
                f"and these live: {[short(each) for each in lives]}"
            )
        if not gone and not is_too_much and (group.failed, group.cancelled) != (failed, cancelled):
            self._broken(
                f"group {short(group.id)} counts {group.failed} failed and {group.cancelled} cancelled, "
                f"there are {failed} and {cancelled}"
            )

    def _group_is_told(self, task_id: str, group: Any, wanted: int) -> None:
        if group.total != wanted:
            self._broken(f"{short(task_id)} was told of {group.total} children, and has {wanted}")

    # budgets

    @staticmethod
    def _note_cost(change: Noted[Step], spent: dict[str, float]) -> None:
        new = change.new
        if new is not None and new.kind == "spend" and new.state == "done" and new.value:
            value = json.loads(new.value)
            if change.old is None or change.old.state != "done":
                spent[value["budget"]] = spent.get(value["budget"], 0.0) + value["cost"]

    def _check_budget(self, statements: Sequence[Statement], change: Noted[Budget], spent: Mapping[str, float]) -> None:
        """By a bucket of our own, which is full after each step of the database's clock."""
        new = change.new
        assert new is not None
        assert self.checker.server is not None
        now, steps = self._now, self.checker.server.clock_steps
        tokens, then, seen = self.buckets.get(new.name, (new.burst, now, steps))
        tokens = new.burst if steps != seen else min(new.burst, tokens + (now - then) * new.rate)
        if _has(statements, "take_from_budget"):
            cost = spent.get(new.name)
            if cost is None:
                self._broken(f"budget {new.name} was spent from, and no step says so")
                return
            if tokens < cost - TOLERANCE:
                self._broken(f"{cost:g} were spent from budget {new.name}, which had {tokens:.2f}")
            tokens -= cost
        self.buckets[new.name] = tokens, now, steps

    def check_end(self) -> None:
        """When everything is done and everybody has stopped."""
        for step in self.steps.values():
            if step.kind == "step" and step.key.startswith("effect:") and step.task_id in self.checker.rows:
                self._check_effect(step, 1 if step.state == "done" else 0)
        assert self.checker.server is not None
        # Groups of removed tasks, which retention may name in a worker's last moment, go when the next worker looks.
        left = self.checker.server.connection.execute(
            "SELECT count(*) FROM tasklib_tallies WHERE group_id IS NULL OR task_id IS NULL"
        ).fetchone()[0]
        if left:
            self._broken(f"{left} tallies of children are not added up")
        for task_id, source in self.given.items():
            gave, row = self.checker.truth.workflows.gave.get(task_id), self.checker.rows.get(source)
            has_run = task_id in self.checker.truth.workflows.gave and row is not None
            if has_run and gave not in self._results_of(source):
                self._broken(f"{short(task_id)} was given {gave!r}, which {short(source)} did not return")

    def _results_of(self, task_id: str) -> set[Any]:
        """Everything that a task was ever completed with."""
        return {
            execution.number
            for execution in self.checker.truth.executions
            if execution.task_id == task_id and execution.how == "returned"
        }


def _what(step: Step) -> str:
    return f"step {step.key} of {short(step.task_id)}"


def _has(statements: Sequence[Statement], name: str) -> bool:
    return any(statement.name == name for statement in statements)
