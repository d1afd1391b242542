"""Replaying waiting workflows: their records, from the database or a file, against the code of this program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.task import Task, TaskState
from tasklib.errors import ConfigurationError
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.database import Database
from tasklib.storage.operations.tasks import require_task
from tasklib.storage.operations.workflows.steps import load_steps
from tasklib.storage.statement import Operation
from tasklib.worker.workflows.replay import Replayed, replay

__all__ = ["Case", "Replayed", "Replays"]

MOST: Final = 10_000
"""Waiting workflows of one name that are looked at."""
_TASK_FIELDS: Final = ("kwargs", "tags", "headers", "priority", "attempts", "max_retries", "version", "waits_for")


@dataclass(frozen=True, slots=True)
class Case:
    """A workflow with everything that it has recorded, in clear."""

    task: Task
    steps: Sequence[Mapping[str, Any]]

    def as_text(self) -> str:
        """One line of a file."""
        task = {name: getattr(self.task, name) for name in _TASK_FIELDS}
        named = {"id": str(self.task.id), "name": self.task.name, "created_at": self.task.created_at.isoformat()}
        return dumps({"task": named | task, "steps": list(self.steps)})

    @classmethod
    def from_text(cls, line: str) -> Self:
        """The inverse of `as_text`; a ConfigurationError if it is none."""
        try:
            data = json.loads(line)
            given, created_at = data["task"], datetime.fromisoformat(data["task"]["created_at"])
            task = Task(
                UUID(given["id"]),
                given["name"],
                TaskState.PENDING,
                created_at,
                created_at,
                created_at,
                **{name: given[name] for name in _TASK_FIELDS},
            )
            return cls(task, data["steps"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{line[:60]!r} is no line that `tasklib replay --save` has written") from error


@dataclass(frozen=True, slots=True)
class Children:
    """The database that has the results of children."""

    database: Database


class Replays(ServicePart):
    """Reads the records of one queue, and runs code against them."""

    @operation
    def case(self, task_id: UUID) -> Operation[Case]:
        """One task with its records."""
        task = yield from require_task(task_id)
        return Case(task, (yield from load_steps(str(task_id))))

    def waiting(self, names: Iterable[str]) -> Iterator[Case]:
        """The workflows of these names that wait and have recorded something, of each name the newest `MOST`."""
        for name in names:
            for task in self.queue.list(state="waiting", name=name, limit=MOST):
                case = self.case(task.id)
                if case.steps:
                    yield case

    def left_out(self, names: Iterable[str]) -> dict[str, int]:
        """How many workflows of each name wait beyond those that `waiting` looks at; only of names that have some."""
        counts = {name: self.queue.count(state="waiting", name=name) for name in names}
        return {name: count - MOST for name, count in counts.items() if count > MOST}

    def children(self) -> Children:
        """Where results of children are read: the queue's database now, whatever replaces it while code is tried."""
        return Children(self.database)

    def replay(self, case: Case, children: Children) -> Replayed | None:
        """What this program's code makes of the records, without secrets; None if it defines no task of that name."""
        definition = self.queue.registry.get(case.task.name)
        if definition is None:
            return None
        found, hide = replay(definition, case.task, case.steps, children), self.redactor.texts_of(case.task).text
        key, recorded, asked = map(hide, (found.key, found.recorded, found.asked))
        return replace(found, key=key, recorded=recorded, asked=asked, notes=[hide(note) or "" for note in found.notes])
