"""What logs, spans and error reporters say of an exception: nothing that may quote a task's arguments or results.

A message of ours says which value was wrong.  It belongs to the caller and into the task's `error`, which are protected
as the task is; signals go to other systems.  What a user's own exception says is the user's choice.
"""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Iterator
from typing import Final

from tasklib.core.texts.error_text import describe_shortly, message_of
from tasklib.errors import (
    ConfigurationError,
    ExecutionError,
    InvalidArguments,
    InvalidPayload,
    InvalidTaskId,
    ResultError,
    TaskLibError,
    UniqueConflict,
)

LEFT_OUT: Final = "what it says may quote values, and is only in the task's error"

_QUOTING: Final = (
    *(InvalidArguments, InvalidPayload, ResultError),
    *(ConfigurationError, InvalidTaskId, UniqueConflict),  # by what the function gave to a method of ours
)
_QUOTED: Final = re.compile(rf"(?:\btasklib\.errors\.|\bfailed: )(?:{'|'.join(each.__name__ for each in _QUOTING)}): ")
"""Where a text begins to repeat such an error: a traceback's last line, or the error of a step or of a child."""


def without_values(text: str) -> str:
    """A text that names an error, cut where that begins to quote values."""
    found = _QUOTED.search(text)
    return text if found is None else f"{text[: found.end()]}{LEFT_OUT}"


def for_signals(error: BaseException) -> BaseException:
    """The exception itself or, if it or a cause of it may quote values, a copy that does not, without causes."""
    if not any(_quotes(each) for each in _chain(error)):
        return error
    if isinstance(error, BaseExceptionGroup):
        shown: BaseException = error.derive([for_signals(each) for each in error.exceptions])
    elif isinstance(error, TaskLibError):
        shown = _safe_copy(error)
    else:
        try:
            shown = copy.copy(error)
        except BaseException:  # noqa: BLE001  the user's own class of exception, which may raise anything
            shown = ExecutionError(f"{type(error).__name__}: {message_of(error)}")
    shown.__cause__, shown.__suppress_context__ = None, True
    return shown.with_traceback(error.__traceback__)


def to_log(error: BaseException) -> BaseException:
    """The same for the traceback of a log line; one that raises when it is shown is replaced by one that says so."""
    shown = for_signals(error)
    try:
        traceback.format_exception_only(shown)
    except BaseException:  # noqa: BLE001  the user's own class of exception, which may raise anything
        return ExecutionError(describe_shortly(shown)).with_traceback(error.__traceback__)
    return shown


def _safe_copy(error: TaskLibError) -> TaskLibError:
    text = LEFT_OUT if type(error) in _QUOTING else without_values(message_of(error))
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.__dict__.pop("__notes__", None)
    if "message" in made.__dict__:  # reporters prefer it
        made.__dict__["message"] = text
    made.args = (text,)
    return made


def _quotes(error: BaseException) -> bool:
    return type(error) in _QUOTING or _QUOTED.search(message_of(error)) is not None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from or during, and the members of groups, each once."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [each.__cause__, None if each.__suppress_context__ else each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
