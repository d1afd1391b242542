"""What every part of the service stands on: one queue, and what hides the secrets of its tasks."""

from __future__ import annotations

from tasklib.core.redaction import Redactor
from tasklib.queue import TaskQueue
from tasklib.storage.database import Database


class ServicePart:
    """One subject of the service; its operations run on the queue's database."""

    def __init__(self, queue: TaskQueue) -> None:
        self.queue = queue
        self.redactor = Redactor(queue.config.redact_keys, queue.secret_places.of)

    @property
    def database(self) -> Database:
        """Where the tasks are kept."""
        return self.queue.database
