"""What must not be shown: values that the code calls secret, and those under keys that sound like it.  Pure.

One Redactor stands before every outlet: HTTP, the command line, logs and traces.  A secret is also taken out of texts,
because exceptions and log lines often quote what they were given.  The table keeps arguments open: they must arrive.

Everything here takes time in proportion to what it is given, whatever that holds: producers decide what is redacted.
"""

from tasklib.core.redaction.keys import DEFAULT_KEYS
from tasklib.core.redaction.paths import SECRETS_HEADER, join_path, marked_paths
from tasklib.core.redaction.redactor import MaskLeft, Redactor, secret_texts
from tasklib.core.redaction.texts import Texts
from tasklib.core.redaction.urls import redact_url, redact_url_error

__all__ = [
    "DEFAULT_KEYS",
    "SECRETS_HEADER",
    "MaskLeft",
    "Redactor",
    "Texts",
    "join_path",
    "marked_paths",
    "redact_url",
    "redact_url_error",
    "secret_texts",
]
