"""OpenTelemetry: spans and metrics for submissions and attempts, by the semantic conventions for messaging.

    from tasklib.contrib.opentelemetry import TasklibInstrumentor

    TasklibInstrumentor().instrument()

A submission is a PRODUCER span whose context travels with the task; an attempt is a CONSUMER span linked to it, also in
another process.  A step of a workflow is a span in that of its attempt, to which its children link.  Inputs and results
are in no signal; of an error, what a task's secrets leave of its text.

Needs the packages of the extra `opentelemetry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.contrib.late import public_names

if TYPE_CHECKING:
    from tasklib.contrib.opentelemetry.instrumentor import TasklibInstrumentor as TasklibInstrumentor

__all__ = ["TasklibInstrumentor"]

__getattr__, __dir__ = public_names(
    __name__, {"TasklibInstrumentor": "instrumentor"}, "opentelemetry", "tasklib-queue[opentelemetry]"
)
