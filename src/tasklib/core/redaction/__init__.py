"""Hiding secrets: values that the code declares secret, and those under keys that sound like one.  Pure.

One Redactor is used wherever something is shown: HTTP, the command line, logs and traces.  Secrets are also removed
from texts, because exceptions and log lines often quote arguments.  The table has arguments in clear, for the task.

Everything here takes linear time whatever the input holds, because producers choose the input.
"""

from tasklib.core.redaction.keys import DEFAULT_KEYS
from tasklib.core.redaction.paths import SECRETS_HEADER, join_path, marked_paths
from tasklib.core.redaction.redactor import MaskLeft, Redactor, secret_texts
from tasklib.core.redaction.texts import Texts
from tasklib.core.redaction.urls import has_bare_at, redact_url, redact_url_error

__all__ = [
    "DEFAULT_KEYS",
    "SECRETS_HEADER",
    "MaskLeft",
    "Redactor",
    "Texts",
    "has_bare_at",
    "join_path",
    "marked_paths",
    "redact_url",
    "redact_url_error",
    "secret_texts",
]
