"""Tasks as the program defines them: options, parameters, validation, and the registry of a queue."""

from tasklib.definition.options import RESERVED_OPTIONS, Isolation, TaskKeywords, TaskOptions, check_name
from tasklib.definition.registry import Registry
from tasklib.definition.signature import shows_options
from tasklib.definition.tasks import (
    Accepts,
    Call,
    Definition,
    FunctionDefinition,
    HandlerDefinition,
    default_name,
)
from tasklib.definition.validation import Misfit

__all__ = [
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
    "shows_options",
]
