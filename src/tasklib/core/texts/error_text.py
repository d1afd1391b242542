"""Texts of errors: a traceback, the line of it that names the exception, and cutting to length.  Pure."""

from __future__ import annotations

import linecache
import textwrap
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
AROUND: Final = 3
"""Source lines shown before and after the one that failed."""
_LIBRARY: Final = str(Path(traceback.__file__).parent)
_PACKAGES: Final = ("site-packages", "dist-packages")


def describe(error: BaseException) -> str:
    """The full traceback, without the worker's own frames at its top."""
    try:
        frames = _skip_callers(error.__traceback__)
        text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        return _with_source(text, frames)
    except BaseException as broken:  # noqa: BLE001  the user's own class of exception, which may raise anything
        return "".join(traceback.format_tb(error.__traceback__)) + _unshown(error, broken)


def describe_shortly(error: BaseException) -> str:
    """The exception in one line, whatever its own class does when it is shown."""
    try:
        return "".join(traceback.TracebackException.from_exception(error).format_exception_only()).strip()
    except BaseException as broken:  # noqa: BLE001  the user's own class of exception, which may raise anything
        return _unshown(error, broken)


def message_of(error: BaseException) -> str:
    """What the exception says, whatever its own `__str__` does."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001  the user's own class of exception, which may raise anything
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


def _unshown(error: BaseException, broken: BaseException) -> str:
    """Said of an exception whose class raises when Python wants to show it."""
    return f"{type(error).__name__}: (it cannot be shown: {type(broken).__name__})"


def _with_source(text: str, frames: TracebackType | None) -> str:
    """The traceback with the source lines around the innermost line that belongs to no library."""
    place: tuple[str, int] | None = None
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith(("<", _LIBRARY)) and not any(part in file for part in _PACKAGES):
            place = file, frames.tb_lineno
        frames = frames.tb_next
    if place is None:
        return text
    file, number = place
    head, found, rest = text.rpartition(f'  File "{file}", line {number}, in ')
    if not found or head[-1:] not in ("", "\n"):  # the frames of a group are behind a bar
        return text
    own = rest.splitlines()
    end = next((at for at, line in enumerate(own) if at and not line.startswith("    ")), len(own))
    return "\n".join([head + found + own[0], *own[1:end], *_around(file, number), *own[end:]])


def _around(file: str, number: int) -> list[str]:
    """Numbered source lines, the one that failed marked with `>`; none if the file cannot be read."""
    numbers = range(max(1, number - AROUND), number + AROUND + 1)
    lines = [(each, linecache.getline(file, each).rstrip()) for each in numbers]
    while lines and not lines[-1][1]:
        lines.pop()
    if len(lines) < 2:
        return []
    width = len(str(lines[-1][0]))
    shown = textwrap.dedent("\n".join(line for _, line in lines)).split("\n")
    numbered = zip((each for each, _ in lines), shown, strict=True)
    return [f"    {each:{width}} {'>' if each == number else '|'} {line}".rstrip() for each, line in numbered]


def _skip_callers(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_CALLERS):
        frames = frames.tb_next
    return frames
