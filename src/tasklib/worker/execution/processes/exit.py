"""The end of a child process: with its worker, whatever its code is doing, or because it was asked to."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

ENDED = 128 + signal.SIGTERM
"""The exit code of a process that ended as it was asked to."""
PR_SET_PDEATHSIG = 1


def die_with(worker: int) -> None:
    """Let the kernel end this process with its parent where it can, and be sure that this has not happened yet."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker:
        os._exit(1)


def die() -> NoReturn:
    """The worker has ended: end at once, with everything the tasks here have started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def leave() -> NoReturn:
    """End as asked, without waiting for threads or exit handlers of the program."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(ENDED)
