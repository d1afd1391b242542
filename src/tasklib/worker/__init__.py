"""The worker: claims tasks, runs them, and records how they ended.  One duty per module."""

from tasklib.worker.settings import WorkerSettings
from tasklib.worker.worker import Worker

__all__ = ["Worker", "WorkerSettings"]
