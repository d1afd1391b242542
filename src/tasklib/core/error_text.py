"""Texts of errors: the line that names the exception, and no more of a text than is kept.  Pure."""

from __future__ import annotations

from typing import Final

SUMMARY_CHARACTERS: Final = 500
ERROR_CHARACTERS: Final = 100_000


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
