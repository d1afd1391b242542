"""Fingerprints of errors: the same for failures of the same kind at the same place.  Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_CHARACTERS: Final = 300

_FRAME = re.compile(r'^[\s|+]*File "([^"]+)", line \d+, in (\S+)')
_EXCEPTION = re.compile(r"^[\s|+-]*([A-Za-z_][\w.]*)(?:: |:$|$)")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ")


def fingerprint(error: str) -> str:
    """The exception and the function in which it was raised, from a traceback or any other text of an error.

    The function is the innermost one of the traceback that is not a library's.  Line numbers are left out, so that an
    edit elsewhere in the file changes nothing, and so is the message, which often differs each time.
    """
    frames = [found.groups() for found in map(_FRAME.match, error.splitlines()) if found]
    own = [frame for frame in frames if not any(mark in frame[0] for mark in _LIBRARIES)]
    place = _place(*(own or frames)[-1]) if frames else ""
    return f"{_exception(error)}{f' in {place}' if place else ''}"[:MAX_CHARACTERS]


def group_id(name: str, fingerprint: str | None) -> str:
    """A short name for a group of errors."""
    return hashlib.sha256(f"{name}\n{fingerprint or ''}".encode()).hexdigest()[:12]


def _exception(error: str) -> str:
    """The name of the exception: on the first line of text after the last frame."""
    lines = error.strip().splitlines()
    last = max((number for number, line in enumerate(lines) if _FRAME.match(line)), default=-1)
    # A line of source code follows a frame, indented more than it.
    for line in lines[last + 1 :]:
        source = line.startswith("    ") or line.lstrip(" |+").startswith(("^", "~"))
        if not source and (named := _EXCEPTION.match(line)):
            return named[1].rpartition(".")[2]
    return "Error"


def _place(path: str, function: str) -> str:
    return f"{'/'.join(path.replace(chr(92), '/').split('/')[-2:])}:{function}"
