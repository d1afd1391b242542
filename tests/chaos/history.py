"""The history of a real run, judged by the promises: what producers were told, what bodies saw, what the rows did.

Triggers of the test's own write every change of every row; no code of tasklib's is asked about itself.  The rules are
those of the simulator (`tests/fixtures/invariants.py`).  `judging.py` does it when a test ends.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tests.chaos.ledger import Entry, Ledger, duplicates
from tests.fixtures.backends import libpq_url
from tests.fixtures.invariants import End, is_end

WAITING = ("pending", "retrying")
PHASE = "CASE WHEN {0}.state = 'failed' AND {0}.next_retry_at IS NOT NULL THEN 'retrying' ELSE {0}.state END"
ROW = "{0}.version, {0}.attempts, {0}.retry_count, {0}.lost_count"
NOTHING = "NULL, NULL, NULL, NULL"
COLUMNS = (
    "old_phase, old_version, old_attempts, old_retries, old_lost, old_listed, "
    "new_phase, new_version, new_attempts, new_retries, new_lost, new_listed"
)


def _side(row: str, listed: str) -> str:
    """The part of a change that shows a row before or after it."""
    return f"{PHASE.format(row)}, {ROW.format(row)}, coalesce({listed.format(row)}, 0)"


def _sqlite() -> str:
    old, new = (_side(row, "json_array_length({0}.history)") for row in ("OLD", "NEW"))
    write = f"INSERT INTO chaos_changes (task_id, name, {COLUMNS}) VALUES"
    return f"""
    CREATE TABLE chaos_effects (task_id TEXT NOT NULL);
    CREATE TABLE chaos_changes (
        seq INTEGER PRIMARY KEY, task_id TEXT, name TEXT, {COLUMNS.replace(", ", " , ")}
    );
    CREATE TRIGGER chaos_insert AFTER INSERT ON tasks
    BEGIN {write} (NEW.id, NEW.name, NULL, {NOTHING}, 0, {new}); END;
    CREATE TRIGGER chaos_update AFTER UPDATE ON tasks WHEN {_differs("IS NOT")}
    BEGIN {write} (NEW.id, NEW.name, {old}, {new}); END;
    CREATE TRIGGER chaos_delete AFTER DELETE ON tasks
    BEGIN {write} (OLD.id, OLD.name, {old}, NULL, {NOTHING}, 0); END;
    """


def _postgres() -> str:
    old, new = (_side(row, "jsonb_array_length({0}.history)") for row in ("OLD", "NEW"))
    write = f"INSERT INTO chaos_changes (task_id, name, {COLUMNS}) VALUES"
    numbers = ", ".join(f"{name} {'text' if name.endswith('phase') else 'bigint'}" for name in COLUMNS.split(", "))
    return f"""
    CREATE TABLE chaos_effects (task_id uuid NOT NULL);
    CREATE TABLE chaos_changes (seq bigserial PRIMARY KEY, task_id uuid, name text, {numbers});
    CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN {write} (NEW.id, NEW.name, NULL, {NOTHING}, 0, {new});
        ELSIF TG_OP = 'DELETE' THEN {write} (OLD.id, OLD.name, {old}, NULL, {NOTHING}, 0);
        ELSIF {_differs("IS DISTINCT FROM")} THEN {write} (NEW.id, NEW.name, {old}, {new});
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE OR DELETE ON tasks FOR EACH ROW EXECUTE FUNCTION chaos_note();
    """


def _differs(word: str) -> str:
    watched = ("state", "version", "attempts", "retry_count", "lost_count", "next_retry_at", "history")
    return " OR ".join(f"OLD.{name} {word} NEW.{name}" for name in watched)


class Side(NamedTuple):
    """A row before or after a change; without a phase there was or is none."""

    phase: str | None
    version: int
    attempts: int
    retries: int
    lost: int
    listed: int


class Change(NamedTuple):
    """What happened to a row."""

    number: int
    task_id: UUID
    name: str
    old: Side
    new: Side

    def __str__(self) -> str:
        old, new = (f"{side.phase or 'nothing'} v{side.version} a{side.attempts}" for side in (self.old, self.new))
        return f"{self.number:>8}  {self.task_id}  {self.name:<12} {old} → {new}"


@dataclass(slots=True)
class History:
    """Everything that is known of one run."""

    url: str
    ledger: Ledger | None
    """Where bodies note what they see; without one, the rows alone are judged."""
    acknowledged: list[UUID] = field(default_factory=list)
    """The tasks whose submission was confirmed to a producer."""
    doubtful: int = 0
    """Submissions that ended in an error: each is in the table or not, nobody can know."""
    is_judged: bool = True
    """Cleared where the test takes acknowledged writes away on purpose."""
    logs: list[Path] = field(default_factory=list)
    """What the processes of the run say, which is kept with it."""

    def record(self) -> None:
        """Write every change down from now on."""
        with self._connection() as connection:
            if isinstance(connection, sqlite3.Connection):
                connection.executescript(_sqlite())
            else:
                connection.execute(_postgres().encode())

    def changes(self) -> list[Change]:
        """Every change, in order."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT seq, task_id, name, {COLUMNS} FROM chaos_changes ORDER BY seq"
            ).fetchall()
        return [Change(r[0], UUID(str(r[1])), r[2], Side(*r[3:9]), Side(*r[9:15])) for r in rows]

    def completions(self) -> list[UUID]:
        """The tasks whose completion was accepted, each as often as it was."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT task_id FROM chaos_changes WHERE new_phase = 'completed' AND old_phase <> 'completed'"
            ).fetchall()
        return [UUID(str(row[0])) for row in rows]

    def effects(self) -> list[UUID]:
        """The tasks that had an effect, each as often as it had."""
        with self._connection() as connection:
            return [UUID(str(row[0])) for row in connection.execute("SELECT task_id FROM chaos_effects").fetchall()]

    def judge(self) -> Verdict:
        """Compare all there is."""
        entries = None if self.ledger is None else self.ledger.entries()
        return Judge(self.changes(), entries, self.effects(), self.acknowledged, self.doubtful).verdict()

    def keep(self, verdict: Verdict, folder: Path) -> None:
        """Leave everything in a folder for a person."""
        folder.mkdir(parents=True, exist_ok=True)
        entries = [] if self.ledger is None else self.ledger.entries()
        lines = [*verdict.violations, "", str(verdict), "", *map(str, verdict.changes), "", *map(str, entries)]
        (folder / "history.txt").write_text("\n".join(lines) + "\n")
        for log in self.logs:
            shutil.copy(log, folder)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        if self.url.startswith("sqlite"):
            connection: Any = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=180, isolation_level=None)
        else:
            connection = psycopg.connect(libpq_url(self.url), autocommit=True)
        try:
            yield connection
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, and how much was looked at."""

    violations: list[str]
    counts: Mapping[str, int]
    changes: list[Change]

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts.items())


class Judge:
    """Goes through a history once, and notes every promise that does not hold."""

    def __init__(
        self,
        changes: list[Change],
        entries: list[Entry] | None,
        effects: list[UUID],
        acknowledged: list[UUID],
        doubtful: int = 0,
    ) -> None:
        self._changes = changes
        self._entries = entries
        self._effects = Counter(effects)
        self._acknowledged = acknowledged
        self._doubtful = doubtful
        self._claims: dict[tuple[UUID, int], Change] = {}
        self._completed: list[tuple[UUID, int]] = []
        self._rows: dict[UUID, Change] = {}
        self._spent: Counter[UUID] = Counter()
        self._highest: dict[UUID, int] = {}
        self._effects_due: Counter[UUID] = Counter()
        self._seen: Counter[str] = Counter()
        self._violations: list[str] = []

    def verdict(self) -> Verdict:
        """Judge everything."""
        for change in self._changes:
            self._judge(change)
        self._judge_submissions()
        if self._entries is not None:
            self._judge_executions(self._entries)
        if self._effects != self._effects_due:
            wrong = (self._effects - self._effects_due) + (self._effects_due - self._effects)
            self._broken(f"effects of transactional tasks do not agree with their completions: {dict(wrong)}")
        return Verdict(self._violations, self._counts(), self._changes)

    def _broken(self, text: str) -> None:
        self._violations.append(text)

    def _judge(self, change: Change) -> None:
        old, new, task_id = change.old, change.new, change.task_id
        if new.phase is None:
            self._seen["removed"] += 1
            if old.phase in (*WAITING, "running"):
                self._broken(f"removed while it was {old.phase}: {change}")
        elif old.phase is None:
            self._spent[task_id] = new.attempts
        elif old.phase in WAITING and new.phase == "running":
            self._judge_claim(change)
        elif old.phase in WAITING and new.phase == "completed":  # claimed and completed in one transaction
            self._judge_claim(change)
            self._complete(change)
        elif old.phase == "running" and new.phase != "running":
            self._judge_end(change)
        elif old.version != new.version and not (old.phase in WAITING and new.phase == "cancelled"):  # it expired
            self._broken(f"another version without a claim: {change}")
        elif new.phase == "pending" and old.phase != "pending":  # retried by hand
            self._spent[task_id] = 0
        if new.phase is not None and new.attempts != self._spent[task_id]:
            self._broken(f"{self._spent[task_id]} attempts were spent: {change}")
        self._rows[task_id] = change

    def _judge_claim(self, change: Change) -> None:
        task_id, new = change.task_id, change.new
        if new.version <= max(change.old.version, self._highest.get(task_id, -1)):
            self._broken(f"a version that was given before: {change}")
        self._highest[task_id] = new.version
        self._claims[task_id, new.version] = change
        self._spent[task_id] += 1

    def _judge_end(self, change: Change) -> None:
        old, new = change.old, change.new
        if old.version != new.version:
            self._broken(f"an end changed the version: {change}")
        end = End(
            str(new.phase),
            old.attempts - new.attempts,
            new.retries - old.retries,
            new.lost - old.lost,
            new.listed - old.listed,
        )
        if not is_end(end, new.listed):
            self._broken(f"no end of an attempt, {tuple(end)}: {change}")
        self._spent[change.task_id] -= end.refund
        self._seen["lost attempts"] += end.lost
        if new.phase == "completed":
            self._complete(change)

    def _complete(self, change: Change) -> None:
        self._completed.append((change.task_id, change.new.version))
        if change.name == "effect":
            self._effects_due[change.task_id] += 1

    def _judge_submissions(self) -> None:
        if again := duplicates(self._acknowledged):
            self._broken(f"confirmed twice: {again}")
        if gone := set(self._acknowledged) - self._rows.keys():
            self._broken(f"{len(gone)} tasks were confirmed and never stored: {sorted(gone)[:5]}")
        if self._acknowledged and len(self._rows) > len(self._acknowledged) + self._doubtful:
            more = len(self._rows) - len(self._acknowledged)
            self._broken(f"{more} tasks were stored that nobody was told of, {self._doubtful} submissions are in doubt")

    def _judge_executions(self, entries: list[Entry]) -> None:
        starts = Counter((entry.task_id, entry.version) for entry in entries if entry.what == "start")
        ends = {(entry.task_id, entry.version) for entry in entries if entry.what == "end"}
        self._seen["executions"] = starts.total()
        for claim, count in starts.items():
            if count > 1:
                self._broken(f"{claim} was run {count} times under one claim")
            if claim not in self._claims:
                self._broken(f"{claim} was run under a claim that the database never gave")
        for entry in entries:
            if entry.what == "overlap":
                self._broken(f"{entry.task_id, entry.version} began while an earlier attempt was still running")
        for claim in self._completed:
            if claim not in ends:
                self._broken(f"{claim} was completed, and its function has not returned")

    def _counts(self) -> dict[str, int]:
        states = Counter(f"{c.new.phase}" for c in self._rows.values() if c.new.phase is not None)
        return {
            "confirmed": len(self._acknowledged),
            "in doubt": self._doubtful,
            "stored": len(self._rows),
            "claims": len(self._claims),
            "completions": len(self._completed),
            "effects": self._effects.total(),
            **self._seen,
            **states,
            "violations": len(self._violations),
        }


def most_at_once(ledger: Ledger, keys: Mapping[UUID, str | None]) -> dict[str | None, int]:
    """How many tasks of each key ran at once at most; of an execution that was killed only its start is known."""
    entries = [entry for entry in ledger.entries() if entry.task_id in keys]
    ended = {(entry.task_id, entry.version) for entry in entries if entry.what == "end"}
    running, most = Counter[str | None](), defaultdict[str | None, int](int)
    # An end and a start at one moment: the end was written before the slot was given away.
    for entry in sorted(entries, key=lambda entry: (entry.moment, entry.what == "start")):
        if (entry.task_id, entry.version) in ended:
            key = keys[entry.task_id]
            running[key] += 1 if entry.what == "start" else -1
            most[key] = max(most[key], running[key])
    return dict(most)
