"""Tasks as the program defines them: options, parameters, validation, and the registry of a queue."""

from tasklib.definition.functions import default_name
from tasklib.definition.registry import Registry
from tasklib.definition.task_options import (
    KEY_RULE,
    NO_TASK_OPTIONS,
    RESERVED_OPTIONS,
    Isolation,
    TaskKeywords,
    TaskOptions,
    check_name,
    is_key,
)
from tasklib.definition.tasks import Accepts, Call, Definition, FunctionDefinition, HandlerDefinition, secrets_of
from tasklib.definition.validation import Misfit

__all__ = [
    "KEY_RULE",
    "NO_TASK_OPTIONS",
    "RESERVED_OPTIONS",
    "Accepts",
    "Call",
    "Definition",
    "FunctionDefinition",
    "HandlerDefinition",
    "Isolation",
    "Misfit",
    "Registry",
    "TaskKeywords",
    "TaskOptions",
    "check_name",
    "default_name",
    "is_key",
    "secrets_of",
]
