"""Whether a value is a number: Python counts True and False as 1 and 0, settings and options do not.  Pure."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is an integer or a float; NaN is one too, and fails every comparison that follows."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)
