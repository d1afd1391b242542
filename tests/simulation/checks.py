"""The promises, checked after every operation and at the end of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from tasklib.core.config import Config
from tasklib.storage.rows import moment_text
from tasklib.storage.statement import Statement
from tests.fixtures.invariants import End, is_end
from tests.simulation.history import History
from tests.simulation.limit_checks import LimitChecker
from tests.simulation.loop import Process
from tests.simulation.rows import Change, ChangeLog, Row
from tests.simulation.server import Server
from tests.simulation.truth import Execution, Truth, short
from tests.simulation.workflow_checks import WorkflowChecker

MARGIN = 0.92
"""A silence that others measured by clocks which run at most a few percent wrong."""
GRACE_SECONDS = 1.0
"""How long a process that was frozen may need to notice that it is late."""
KEPT_SECONDS = 10.0
"""How long completed tasks are kept where they are removed at all."""
CLAIMS = frozenset({"claim_tasks", "claim_plain", "claim_next"})
REMOVALS = frozenset({"delete_tasks", "cleanup_tasks", "sweep_tasks"})


@dataclass(slots=True)
class Claim:
    """One claim: who holds the task under which version, and since when its lease was moved."""

    instance: str
    process: Process
    renewed: float


@dataclass(slots=True)
class Checker:
    """Sees every change of every row, and compares it with what really happened."""

    config: Config
    truth: Truth
    history: History
    violations: list[str] = field(default_factory=list)
    claims: dict[tuple[str, int], Claim] = field(default_factory=dict)
    beats: dict[str, float] = field(default_factory=dict)
    """When the database last got a sign of life of each instance."""
    rows: dict[str, Row] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    completions: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    """Attempts of each task since it was submitted or retried by hand, by what was seen."""
    changed_by: Counter[Process] = field(default_factory=Counter)
    """How many rows each process has changed."""
    counted: dict[Process, Counter[str]] = field(default_factory=dict)
    """How many rows there were in each state when a process had them counted last."""
    completed_by: set[int] = field(default_factory=set)
    """The executions whose results were accepted."""
    ticks: set[tuple[str, str]] = field(default_factory=set)
    workflows: WorkflowChecker = field(init=False)
    limits: LimitChecker = field(init=False)
    server: Server | None = None
    changes: ChangeLog | None = None

    def __post_init__(self) -> None:
        self.workflows = WorkflowChecker(self)
        self.limits = LimitChecker(self, GRACE_SECONDS)
        self.truth.on_start = self._check_start

    def attach(self, server: Server) -> None:
        """Look at this database from now on."""
        self.server = server
        self.changes = ChangeLog(server.connection)
        self.workflows.attach()

    def committed(self, process: Process, statements: Sequence[Statement]) -> None:
        """After every operation."""
        self._note_life(process, statements)
        self.limits.committed(statements)
        assert self.changes is not None
        for change in self.changes.take():
            self.changed_by[process] += 1
            self._check(process, statements, change)
            self.workflows.row_changed(change.old, change.new)
        self.workflows.committed(process, statements)
        if _has(statements, "count_by_state"):
            self.counted[process] = Counter(row.state for row in self.rows.values())

    def broken(self, text: str) -> None:
        """A promise does not hold."""
        self.history.add("CHECK", text)
        self.violations.append(text)

    def _note_life(self, process: Process, statements: Sequence[Statement]) -> None:
        now = self.truth.loop.now
        for statement in statements:
            match statement.name:
                case "beat":
                    self.beats[str(statement.params["instance"])] = now
                case "register_worker":  # said again, it changes nothing
                    self.beats.setdefault(str(statement.params["instance"]), now)
                case "renew_leases":
                    for held in json.loads(statement.params["held"]):
                        claim = self.claims.get((held["id"], held["version"]))
                        if claim is not None:
                            claim.renewed = now
                case "renew_held":
                    for claim in self.claims.values():
                        if claim.instance == str(statement.params["instance"]):
                            claim.renewed = now

    def _check(self, process: Process, statements: Sequence[Statement], change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            self._check_removal(process, statements, old)
            return
        self.rows[new.id] = new
        what = f"{new.name} {short(new.id)}"
        if old is None:
            self._check_insert(new, what)
            return
        self.history.add(process, f"{what} {old.phase} v{old.version} → {new.phase} v{new.version} a{new.attempts}")
        if old.phase in ("pending", "retrying") and new.phase == "running":
            self._check_claim(process, statements, old, new, what)
        elif old.phase == "running" and new.phase == "running":
            if (old.version, old.attempts) != (new.version, new.attempts):
                self.broken(f"{what} was claimed while it ran: v{old.version} → v{new.version}")
        elif old.phase == "running":
            self._check_end(process, statements, old, new, what)
        else:
            self._check_act(statements, old, new, what)

    def _check_insert(self, new: Row, what: str) -> None:
        self.removed.discard(new.id)
        self.spent[new.id] = 0
        if (new.state, new.version, new.attempts, new.retry_count, new.lost_count) != ("pending", 0, 0, 0, 0):
            self.broken(f"{what} was stored with counters: {new}")
        self._check_unique(new, what)
        headers = json.loads(new.headers) if new.headers else {}
        if "tick" in headers:
            tick = headers["schedule"], headers["tick"]
            if tick in self.ticks:
                self.broken(f"{what}: the tick {tick} was made twice")
            self.ticks.add(tick)

    def _check_unique(self, new: Row, what: str) -> None:
        if new.unique_key is not None and new.is_live:
            others = [
                row.id
                for row in self.rows.values()
                if row.is_live and (row.name, row.unique_key) == (new.name, new.unique_key) and row.id != new.id
            ]
            if others:
                self.broken(f"{what}: {others} have the unique key {new.unique_key} too")

    def _check_claim(self, process: Process, statements: Sequence[Statement], old: Row, new: Row, what: str) -> None:
        if (new.id, new.version) in self.claims or new.version <= old.version:
            self.broken(f"{what} was claimed with the version {new.version}, which was given before")
        if (new.attempts, new.retry_count, new.lost_count) != (old.attempts + 1, old.retry_count, old.lost_count):
            self.broken(f"{what}: a claim changed counters from {_counters(old)} to {_counters(new)}")
        assert self.server is not None
        if old.due_at is not None and old.due_at > moment_text(self.server.latest_now() + timedelta(milliseconds=2)):
            self.broken(f"{what} was claimed before {old.due_at}, when it is due")
        self.spent[new.id] += 1
        claim = next((each for each in statements if each.name in CLAIMS), None)
        if claim is None:
            self.broken(f"{what} was claimed by {[each.name for each in statements]}")
            return
        instance = str(claim.params["instance"])
        self.claims[new.id, new.version] = Claim(instance, process, self.truth.loop.now)
        if instance not in self.beats:
            self.broken(f"{what} was claimed by an instance that never registered")
        self.limits.claimed(new, what)
        self.workflows.claimed(new, what)

    def _check_start(self, execution: Execution) -> None:
        """A claim is run once, and only while it holds."""
        what = f"{execution.name} {short(execution.task_id)} v{execution.version}"
        if len(self.truth.by_claim[execution.task_id, execution.version]) > 1:
            self.broken(f"{what} is run again under one claim")
        row = self.rows.get(execution.task_id)
        holds = row is not None and (row.state, row.version) == ("running", execution.version)
        if not holds and not execution.is_remote and execution.process.has_run_for(GRACE_SECONDS):
            self.broken(f"{what} is begun by {execution.process}, which no longer holds it")

    def _check_end(self, process: Process, statements: Sequence[Statement], old: Row, new: Row, what: str) -> None:
        if new.version != old.version:
            self.broken(f"{what}: an end changed the version from {old.version} to {new.version}")
        refund, retried = old.attempts - new.attempts, new.retry_count - old.retry_count
        lost, failures = new.lost_count - old.lost_count, new.failures - old.failures
        seen = End(new.phase, refund, retried, lost, failures)
        if not is_end(seen, new.failures):
            self.broken(f"{what} ended as {tuple(seen)}, which is no end of an attempt")
        self.spent[new.id] -= refund
        executions = self.truth.by_claim.get((old.id, old.version), [])
        self._check_meant(statements, old, what)
        if refund and any(each.has_an_outcome for each in executions):
            self.broken(f"{what} v{old.version} is given back, and its body {executions[-1].how}")
        if new.phase == "completed":
            self._check_completion(old, new, what)
        elif lost:
            self._check_loss(old, what)
        elif failures and not executions and new.phase != "cancelled" and not self._may_end_unstarted(statements, new):
            self.broken(f"{what} v{old.version} failed and has never run")
        if new.phase == "buried" and not lost:
            self.broken(f"{what} was buried, and its worker was not lost")
        # Each step that a workflow records starts its retries anew, and its attempts go on.
        many = new.attempts > new.max_retries + 1 and new.name != "story"
        if new.retry_count > new.max_retries or many:
            self.broken(f"{what} was tried too often: {_counters(new)} of {new.max_retries} retries")

    @staticmethod
    def _may_end_unstarted(statements: Sequence[Statement], row: Row) -> bool:
        """The service ends attempts of workers over HTTP that never got the answer to their claim, and a transactional
        task can run out of time while it waits for the only writer."""
        return _has(statements, "list_timed") or row.name == "effect"

    def _check_meant(self, statements: Sequence[Statement], old: Row, what: str) -> None:
        """An end that was written for one claim ends no other."""
        for statement in statements:
            if statement.name == "end_attempts":
                meant = {end["version"] for end in json.loads(statement.params["batch"]) if end["id"] == old.id}
                if meant and old.version not in meant:
                    self.broken(f"{what} v{old.version} was ended by what was meant for {sorted(meant)}")

    def _check_completion(self, old: Row, new: Row, what: str) -> None:
        self.completions[new.id] += 1
        number = new.value
        if not isinstance(number, int) or number >= len(self.truth.executions):
            self.broken(f"{what} was completed with {number!r}, which no body returned")
            return
        execution = self.truth.executions[number]
        self.completed_by.add(number)
        if (execution.task_id, execution.version) != (old.id, old.version):
            self.broken(
                f"{what} v{old.version} was completed by an execution of "
                f"{short(execution.task_id)} v{execution.version}, which it no longer is"
            )
        if execution.how not in ("returned", "runs"):
            self.broken(f"{what} was completed and its body {execution.how}")
        if new.name == "effect":
            self._check_effects(new, what)

    def _check_effects(self, row: Row, what: str) -> None:
        assert self.server is not None
        (found,) = self.server.connection.execute(
            "SELECT count(*) FROM effects WHERE task_id = ?", (row.id,)
        ).fetchone()
        if found != self.completions[row.id]:
            self.broken(f"{what} has {found} effects and was completed {self.completions[row.id]} times")

    def _check_loss(self, old: Row, what: str) -> None:
        """Nobody is declared lost who was heard of a moment ago, or could not be heard."""
        assert self.server is not None
        claim = self.claims[old.id, old.version]
        now, config = self.truth.loop.now, self.config
        # Who cannot look for half of the time cannot tell silence from an outage, and observes anew.
        long = 0.5 * config.worker_timeout_seconds
        back = max((end for start, end in self.server.outages if end - start > long), default=0.0)
        silence = now - max(self.beats.get(claim.instance, 0.0), back)
        if silence < MARGIN * config.worker_timeout_seconds:
            self.broken(
                f"{what} was taken from {claim.process} after {silence:.1f} s of silence, "
                f"{config.worker_timeout_seconds:g} s are its right"
            )
        for execution in self.truth.by_claim.get((old.id, old.version), []):
            if execution.is_running and execution.can_be_stopped and execution.process.has_run_for(GRACE_SECONDS):
                self.broken(f"{what} v{old.version} is taken from {execution.process}, which still runs it")

    def _check_act(self, statements: Sequence[Statement], old: Row, new: Row, what: str) -> None:
        """What people do, what expires, what is woken, and what continues as new."""
        if old.phase == new.phase and old.attempts != new.attempts:
            if new.attempts or not _has(statements, "restart_tasks"):
                self.broken(f"{what} waits, and its attempts went from {old.attempts} to {new.attempts}")
            self.spent[new.id] = 0
        if old.version != new.version:
            self.broken(f"{what} changed its version from {old.version} to {new.version} without a claim")
        if new.phase == "pending" and old.phase != "pending":
            if (new.attempts, new.retry_count) != (0, 0):
                self.broken(f"{what} was retried by hand and kept counters: {_counters(new)}")
            self.spent[new.id] = 0
            self._check_unique(new, what)

    def _check_removal(self, process: Process, statements: Sequence[Statement], old: Row) -> None:
        self.rows.pop(old.id, None)
        self.removed.add(old.id)
        what = f"{old.name} {short(old.id)}"
        self.history.add(process, f"{what} {old.phase} is removed")
        if old.is_live:
            self.broken(f"{what} was removed while it was {old.phase}")
        if _has(statements, "sweep_tasks"):
            assert self.server is not None
            limit = moment_text(self.server.now() - timedelta(seconds=KEPT_SECONDS - 0.01))
            if old.phase != "completed" or (old.completed_at or "") > limit:
                self.broken(f"{what}, {old.phase} at {old.completed_at}, was removed before its time")
        if not REMOVALS & {each.name for each in statements}:
            self.broken(f"{what} was removed by {[each.name for each in statements]}")

    def check_end(self) -> None:
        """When everything is done and everybody has stopped."""
        self.workflows.check_end()
        assert self.changes is not None
        stored = {row.id: row for row in self.changes.all()}
        for task_id, name in self.truth.acknowledged.items():
            if task_id not in stored and task_id not in self.removed:
                self.broken(f"{name} {short(task_id)} was confirmed, and is gone")
        for row in stored.values():
            what = f"{row.name} {short(row.id)}"
            if row != self.rows.get(row.id):
                self.broken(f"{what} is not as the last change left it")
            if row.attempts != self.spent[row.id]:
                self.broken(f"{what} says {row.attempts} attempts, {self.spent[row.id]} were spent")
            if row.name == "effect":
                self._check_effects(row, what)
        for task_id, execution in self.truth.submitted_inside.items():
            is_there = task_id in stored or task_id in self.removed
            if is_there != (execution.number in self.completed_by):
                what = f"{short(task_id)}, submitted in the transaction of {short(execution.task_id)}"
                self.broken(f"{what} v{execution.version}, is {'there' if is_there else 'not there'}")

    def check_ticks(self, schedule: str, every: float) -> None:
        """Of a schedule that makes up for every tick none is missing."""
        found = sorted(datetime.fromisoformat(tick) for name, tick in self.ticks if name == schedule)
        for before, after in pairwise(found):
            if abs((after - before).total_seconds() - every) > 0.01:
                self.broken(f"{schedule} made no task between {before} and {after}")

    def check_counts(self, reader: Process, counted: Mapping[str, int]) -> None:
        """What the queue counts are the rows."""
        rows = self.counted[reader]
        if {state: count for state, count in counted.items() if count} != dict(rows):
            self.broken(f"the queue counts {counted}, there are {dict(rows)}")

    def check_registered(self, alive: int) -> None:
        """So many workers are registered as there are."""
        assert self.server is not None
        found = self.server.connection.execute("SELECT worker_id FROM tasklib_workers WHERE owner IS NULL").fetchall()
        if len(found) != alive:
            self.broken(f"{alive} workers are alive, and these are registered: {sorted(name for (name,) in found)}")


def _has(statements: Sequence[Statement], name: str) -> bool:
    return any(statement.name == name for statement in statements)


def _counters(row: Row) -> str:
    return f"attempts {row.attempts}, retries {row.retry_count}, lost {row.lost_count}, listed {row.failures}"
