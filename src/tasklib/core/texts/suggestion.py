"""Suggestions for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def did_you_mean(name: str, known: Sequence[str], *, otherwise: str = "", written: str = "{}") -> str:
    """`did you mean ...?` with the known name that is most like this one, `written` so; `otherwise` if none is."""
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {written.format(close[0])}?" if close else otherwise
