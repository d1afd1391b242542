"""The tables of tasklib: its own SQL in the database, and the models that read them in Django's state."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from tasklib.contrib.django.models import TaskIdField
from tasklib.storage.shared_migrate import drop_on, migrate_on

SCHEMA = 1
"""The migration of tasklib that this one applies."""


def make_tables(apps: Any, schema_editor: Any) -> None:
    """Make what is missing; tables that `tasklib migrate` has made are left as they are."""
    migrate_on(schema_editor.connection, up_to=SCHEMA)


def drop_tables(apps: Any, schema_editor: Any) -> None:
    """Remove the tables, with all tasks."""
    drop_on(schema_editor.connection)


class Migration(migrations.Migration):
    """The first migration."""

    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(make_tables, drop_tables, elidable=False)],
            state_operations=[
                migrations.CreateModel(
                    name="Schedule",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("plan", models.JSONField()),
                        ("next_run_at", models.DateTimeField(null=True)),
                        ("last_run_at", models.DateTimeField(null=True)),
                        ("paused_at", models.DateTimeField(null=True)),
                        ("error", models.TextField(null=True)),
                    ],
                    options={
                        "verbose_name": "schedule",
                        "verbose_name_plural": "schedules",
                        "db_table": "tasklib_schedules",
                        "default_permissions": ("view", "change"),
                    },
                ),
                migrations.CreateModel(
                    name="Task",
                    fields=[
                        ("id", TaskIdField(primary_key=True, serialize=False)),
                        ("seq", models.BigIntegerField(editable=False)),
                        ("name", models.TextField(verbose_name="task")),
                        ("state", models.TextField(default="pending")),
                        ("priority", models.IntegerField(default=0)),
                        ("kwargs", models.JSONField(default=dict, verbose_name="arguments")),
                        ("tags", models.JSONField(default=dict)),
                        ("headers", models.JSONField(null=True)),
                        ("result", models.JSONField(null=True)),
                        ("error", models.TextField(null=True)),
                        ("created_at", models.DateTimeField(verbose_name="enqueued")),
                        ("scheduled_at", models.DateTimeField()),
                        ("started_at", models.DateTimeField(null=True, verbose_name="started")),
                        ("completed_at", models.DateTimeField(null=True, verbose_name="finished")),
                        ("updated_at", models.DateTimeField()),
                        ("next_retry_at", models.DateTimeField(null=True, verbose_name="next attempt")),
                        ("expires_at", models.DateTimeField(null=True)),
                        ("attempts", models.IntegerField(default=0)),
                        ("retry_count", models.IntegerField(default=0)),
                        ("max_retries", models.IntegerField(default=-1)),
                        ("timeout_seconds", models.FloatField(null=True)),
                        ("progress", models.FloatField(null=True)),
                        ("progress_message", models.TextField(null=True)),
                        ("worker_id", models.TextField(null=True, verbose_name="worker")),
                        ("finished_by", models.TextField(null=True)),
                        ("unique_key", models.TextField(null=True)),
                        ("concurrency_key", models.TextField(null=True)),
                    ],
                    options={
                        "verbose_name": "task",
                        "verbose_name_plural": "tasks",
                        "db_table": "tasks",
                        "default_permissions": ("view", "change"),
                    },
                ),
            ],
        )
    ]
