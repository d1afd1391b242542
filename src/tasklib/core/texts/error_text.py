"""Texts of errors: a traceback, the line of it that names the exception, and cutting to length.  Pure."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

SUMMARY_CHARACTERS: Final = 500
ERROR_CHARACTERS: Final = 100_000

_CALLERS: Final = (
    str(Path(__file__).parents[2] / "worker"),
    str(Path(__file__).parents[1] / "calls" / "middleware.py"),
    str(Path(__file__).parents[2] / "contrib" / "django"),
    str(Path(traceback.__file__).parent / "asyncio"),
)
"""The files of the code that calls a task's function."""


def describe(error: BaseException) -> str:
    """The full traceback, without the worker's own frames at its top."""
    try:
        return "".join(traceback.format_exception(type(error), error, _skip_callers(error.__traceback__))).rstrip()
    except Exception as broken:  # noqa: BLE001  the user's own class of exception
        return f"{type(error).__name__}: (its traceback cannot be shown: {type(broken).__name__})"


def describe_shortly(error: BaseException) -> str:
    """The exception in one line, whatever its own `__str__` does."""
    return "".join(traceback.TracebackException.from_exception(error).format_exception_only()).strip()


def message_of(error: BaseException) -> str:
    """What the exception says, whatever its own `__str__` does."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001  the user's own class of exception
        return f"(its text cannot be shown: {type(broken).__name__})"


def summary(error: str) -> str:
    """The line of a traceback that names the exception: the first one after the last frame, or of a group's own."""
    lines = error.strip().splitlines()
    if lines and lines[0].startswith("+ Exception Group Traceback"):
        lines = [line.removeprefix("  | ") for line in lines if line.startswith("  | ")]
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] + 1 :] if frames else lines
    named = (line for line in after if line[:1].strip() and not line.startswith("Traceback (most recent call last)"))
    return bounded(next(named, ""), SUMMARY_CHARACTERS)


def bounded(text: str, limit: int) -> str:
    """The text without what no database keeps, its middle cut out if it is too long."""
    clean = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    if len(clean) <= limit:
        return clean
    half = (limit - 20) // 2
    return f"{clean[:half]}\n… cut …\n{clean[-half:]}"


def _skip_callers(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_CALLERS):
        frames = frames.tb_next
    return frames
