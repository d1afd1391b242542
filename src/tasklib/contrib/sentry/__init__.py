"""Sentry: errors of tasks, spans of submissions and attempts for its queue pages, and check-ins of schedules.

    sentry_sdk.init(dsn=..., traces_sample_rate=1.0, integrations=[TasklibIntegration()])

Inputs, results and local variables are not sent; of an error, what a task's secrets leave of its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.contrib.late import public_names

if TYPE_CHECKING:
    from tasklib.contrib.sentry.integration import TasklibIntegration as TasklibIntegration

__all__ = ["TasklibIntegration"]

__getattr__, __dir__ = public_names(__name__, {"TasklibIntegration": "integration"}, "sentry_sdk", "sentry-sdk")
