"""Copies of the worker's process, which a task makes that forks: each ends where the task's code leaves it.

Otherwise the copy would go on as the worker that it was copied from, with the same tasks, connections and event loop.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

R = TypeVar("R")

_forks = 0
"""How many forks lie between this process and the one that has started Python."""


def call_in_this_process(function: Callable[..., R], *args: object) -> R:
    """Call code of the user's, which may fork; it returns in this process alone."""
    before = _forks
    try:
        return function(*args)
    finally:
        if _forks != before:
            _end_copy(sys.exc_info()[1])


def _end_copy(error: BaseException | None) -> NoReturn:
    """End this process as Python would after the same error, but clean up nothing of its parent's."""
    code = 0
    with suppress(Exception):
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            code = error.code or 0
        elif error is not None and not isinstance(error, StopIteration):  # so a coroutine returns
            code = 1
            traceback.print_exception(error)
        sys.stdout.flush()
    os._exit(code & 0xFF)


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)
