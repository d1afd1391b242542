"""The tables as Django sees them: to read tasks with the ORM, and so that Django empties them between tests.

Django never makes or changes these tables: the migrations do, with tasklib's own SQL.  Tasks are changed through
`get_queue()` or the admin, which keep the rules of their life: a row that was saved would bypass them.
"""

from __future__ import annotations

from typing import Any, NoReturn
from uuid import UUID

from django.db import models


class TaskIdField(models.UUIDField):
    """A UUID; as text with dashes on SQLite, where Django would write it without them."""

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """The value as our tables store it."""
        if value is not None and not isinstance(value, UUID):
            value = self.to_python(value)
        return value if value is None or connection.features.has_native_uuid_field else str(value)


class ReadOnly(models.Model):
    """A row that the ORM reads and does not write."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: it would bypass the rules of a task's life."""
        raise TypeError("tasks are changed through tasklib.contrib.django.get_queue(), not by save()")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: it would bypass the rules of a task's life."""
        raise TypeError("tasks are deleted through tasklib.contrib.django.get_queue().delete(id)")


class Task(ReadOnly):
    """One task; docs/reference/table.md describes the columns."""

    id = TaskIdField(primary_key=True)
    seq = models.BigIntegerField(editable=False)
    name = models.TextField("task")
    state = models.TextField(default="pending")
    priority = models.IntegerField(default=0)
    kwargs = models.JSONField("arguments", default=dict)
    tags = models.JSONField(default=dict)
    headers = models.JSONField(null=True)
    result = models.JSONField(null=True)
    error = models.TextField(null=True)
    created_at = models.DateTimeField("enqueued")
    scheduled_at = models.DateTimeField()
    started_at = models.DateTimeField("started", null=True)
    completed_at = models.DateTimeField("finished", null=True)
    updated_at = models.DateTimeField()
    next_retry_at = models.DateTimeField("next attempt", null=True)
    expires_at = models.DateTimeField(null=True)
    attempts = models.IntegerField(default=0)
    retry_count = models.IntegerField(default=0)
    max_retries = models.IntegerField(default=-1)
    timeout_seconds = models.FloatField(null=True)
    progress = models.FloatField(null=True)
    progress_message = models.TextField(null=True)
    worker_id = models.TextField("worker", null=True)
    finished_by = models.TextField(null=True)
    unique_key = models.TextField(null=True)
    concurrency_key = models.TextField(null=True)

    class Meta:
        db_table = "tasks"
        verbose_name = "task"
        verbose_name_plural = "tasks"
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return f"{self.name} {self.id}"


class Schedule(ReadOnly):
    """One schedule of repeated tasks."""

    name = models.TextField(primary_key=True)
    plan = models.JSONField()
    next_run_at = models.DateTimeField(null=True)
    last_run_at = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    error = models.TextField(null=True)

    class Meta:
        db_table = "tasklib_schedules"
        verbose_name = "schedule"
        verbose_name_plural = "schedules"
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return str(self.name)
