"""Copies of the worker's process, which a task makes that forks: each ends where the task's code leaves it.

Otherwise the copy would go on as the worker that it was copied from, with the same tasks, connections and event loop.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

forks = 0
"""How many forks lie between this process and the one that has started Python: compare it before and after a call of
code of the user's."""


def end_copy() -> NoReturn:
    """End this process as Python would after the error that is being handled, but clean up nothing of its parent's."""
    error = sys.exc_info()[1]
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
    global forks
    forks += 1


os.register_at_fork(after_in_child=_count_fork)
