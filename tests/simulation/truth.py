"""What really happened: which bodies ran where and when, and what submitters were promised."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from tasklib import Task
from tests.simulation.history import History
from tests.simulation.ledger import Ledger
from tests.simulation.loop import CURRENT, Process, VirtualLoop


@dataclass(slots=True)
class Execution:
    """One call of a body."""

    number: int
    """Unique in a run; a body that returns gives it as its result."""
    task_id: str
    version: int
    name: str
    key: str | None
    process: Process
    started: float
    is_remote: bool = False
    can_be_stopped: bool = True
    ended: float | None = None
    how: str = "runs"

    @property
    def is_running(self) -> bool:
        """Whether it has not ended, and still can."""
        return self.ended is None and self.process.is_alive

    @property
    def has_an_outcome(self) -> bool:
        """Whether it ended by itself in a way that is to be recorded."""
        return self.can_be_stopped and self.name != "effect" and self.how in ("returned", "ValueError")


@dataclass(slots=True)
class Truth:
    """The ledger that no simulated fault reaches."""

    loop: VirtualLoop
    history: History
    executions: list[Execution] = field(default_factory=list)
    by_claim: dict[tuple[str, int], list[Execution]] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Ids whose submission was confirmed, with the name of the task."""
    submitted_inside: dict[str, Execution] = field(default_factory=dict)
    """Ids that executions have submitted in the transactions that complete them."""
    on_start: Callable[[Execution], None] = lambda _: None
    _unended: dict[int, Execution] = field(default_factory=dict)
    workflows: Ledger = field(default_factory=Ledger)

    @contextmanager
    def executing(self, task: Task, *, is_remote: bool = False) -> Generator[Execution]:
        """Note that a body runs, and how it ends."""
        process = CURRENT.get()
        assert process is not None
        stubborn = task.name == "blocking" or task.payload.get("behaviour") == "stubborn"
        execution = Execution(
            number=len(self.executions),
            task_id=str(task.id),
            version=task.version,
            name=task.name,
            key=task.concurrency_key,
            process=process,
            started=self.loop.now,
            is_remote=is_remote,
            can_be_stopped=not stubborn and not is_remote,
        )
        self.executions.append(execution)
        self._unended[execution.number] = execution
        self.by_claim.setdefault((execution.task_id, execution.version), []).append(execution)
        self.history.add(process, f"starts {short(task.id)} v{execution.version} {task.name} {dict(task.payload)}")
        self.on_start(execution)
        try:
            yield execution
            execution.how = "returned"
        except BaseException as error:
            execution.how = type(error).__name__
            raise
        finally:
            if process.is_alive:
                execution.ended = self.loop.now
                self._unended.pop(execution.number)
                self.history.add(process, f"ended  {short(task.id)} v{execution.version} {execution.how}")

    def running(self) -> list[Execution]:
        """The executions that have not ended."""
        return [execution for execution in self._unended.values() if execution.is_running]

    def acknowledge(self, task_id: UUID, name: str) -> None:
        """A submitter was told that its task is stored."""
        self.acknowledged[str(task_id)] = name


def short(task_id: object) -> str:
    """An id as the history shows it: the part that differs."""
    return str(task_id)[-6:]
