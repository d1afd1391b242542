"""The logger of a running task: records carry the task's details, lines are kept on its row, secrets are removed."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from tasklib.core.redaction import Texts

MAX_MESSAGE_LENGTH: Final = 500
"""How much of a progress message or a logged line is kept."""

Recorder: TypeAlias = Callable[[str, str], None]
"""Takes the level and text of a logged line without waiting."""

_logger: Final = logging.getLogger("tasklib.task")


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's details to each record, beside what the call gives as `extra`, and keeps its line on the task."""

    def __init__(
        self,
        extra: Mapping[str, object],
        record: Recorder | None = None,
        secrets: Texts | None = None,
    ) -> None:
        super().__init__(_logger, extra)
        self._record = record
        self._secrets = secrets

    def add_details(self, **details: object) -> None:
        """Let every later record carry these too, such as the ids of a trace."""
        self.extra = {**(self.extra or {}), **details}

    def __call__(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line at the level INFO."""
        self.log(logging.INFO, msg, *args, **_naming_the_caller(kwargs))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; it is kept on the task whatever level the program's logging is set to."""
        is_kept, is_shown = self._record is not None and level >= logging.INFO, self.isEnabledFor(level)
        if self._secrets is not None and (is_kept or is_shown):
            msg, args = self._secrets.text(_formatted(msg, args)), ()
            kwargs = self._without_secrets(kwargs)
        if self._record is not None and is_kept:
            self._record(logging.getLevelName(level), fitting(_formatted(msg, args)))
        super().log(level, msg, *args, **_naming_the_caller(kwargs))

    def _without_secrets(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a logging call; of an exception that quotes a secret only its text is left."""
        assert self._secrets is not None
        given = kwargs.get("extra")
        if given:
            kwargs = {**kwargs, "extra": self._secrets.everywhere(given)}
        error = kwargs.get("exc_info")
        if not error:
            return kwargs
        raised: Any = sys.exc_info()[1] if error is True else error[1] if isinstance(error, tuple) else error
        text = "".join(traceback.format_exception(raised)).rstrip() if isinstance(raised, BaseException) else ""
        clean = self._secrets.text(text)
        return kwargs if clean == text else {**kwargs, "exc_info": _RedactedError(clean)}

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message unchanged, the details merged in."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class _RedactedError(Exception):
    """Replaces an exception whose text quotes a secret: the redacted traceback is its text."""


def _naming_the_caller(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a logging call made on behalf of the caller, so that the record names the caller's line."""
    return {**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1}


def _formatted(msg: object, args: tuple[object, ...]) -> str:
    """The line as logging would write it; arguments that do not fit are shown beside it."""
    try:
        return str(msg) % args if args else str(msg)
    except (TypeError, ValueError, KeyError):
        return f"{msg} {args!r}"


def fitting(message: Any) -> str:
    """A message the database can keep: cut to length, without NUL and lone surrogates."""
    text = str(message).replace("\0", "").encode(errors="replace").decode()
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"
