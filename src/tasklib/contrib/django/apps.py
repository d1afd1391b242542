"""The Django app: its label, its checks, and its tables where a project runs without migrations."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections, router
from django.db.models.signals import pre_migrate


class TasklibConfig(AppConfig):
    """tasklib in a Django project."""

    name = "tasklib.contrib.django"
    label = "tasklib"
    verbose_name = "Background tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and make the tables where migrations are off."""
        from tasklib.contrib.django.checks import check_framework

        checks.register(check_framework, checks.Tags.compatibility)
        pre_migrate.connect(make_tables_without_migrations, sender=self)


def make_tables_without_migrations(app_config: Any, using: str, **_: Any) -> None:
    """Make our own tables where a test run has turned migrations off: Django would make them from the models."""
    modules = settings.MIGRATION_MODULES
    # Not `get`: pytest-django's --nomigrations puts an object here that only answers these.
    if app_config.label not in modules or modules[app_config.label] is not None:
        return
    if router.allow_migrate(using, app_config.label):
        from tasklib.contrib.django.database import DjangoDatabase

        if connections[using].vendor in ("sqlite", "postgresql"):
            DjangoDatabase(using).migrate()
