"""What submitting needs of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, overload

from tasklib.core.config import Config
from tasklib.core.task import NewTask, TaskBatch, TaskId, TaskIds
from tasklib.definition import Definition
from tasklib.submission.submit_options import SubmitOptions

Chunk: TypeAlias = TaskBatch | Sequence[NewTask]
"""What is stored in one statement."""
Stored: TypeAlias = TaskIds | list[TaskId]
"""The ids of what was."""


class TaskStore(Protocol):
    """Makes rows of submissions, and stores them; a TaskQueue."""

    config: Config

    def new_task(self, definition: Definition, kwargs: Any, options: SubmitOptions) -> NewTask:
        """The row of one submission."""
        ...

    @overload
    def submit_new(self, new: TaskBatch, connection: Any = None) -> TaskIds: ...
    @overload
    def submit_new(self, new: Sequence[NewTask], connection: Any = None) -> list[TaskId]: ...
    @overload
    def submit_new(self, new: Chunk, connection: Any = None) -> Stored: ...

    async def asubmit_new(self, new: Chunk, connection: Any = None) -> Stored:
        """The awaiting form of `submit_new`."""
        ...

    async def asubmit_one(self, new: NewTask, connection: Any = None) -> TaskId:
        """Store one row, together with those that are submitted at the same time."""
        ...

    def is_joined(self, connection: Any) -> bool:
        """Whether what is stored becomes part of a transaction that is open already."""
        ...
