"""Ends a throwaway PostgreSQL server and deletes its directory once the process it was started for is gone.

Usage: watchdog.py OWNER_PID DIRECTORY      (SIGTERM: do it now)

A process of its own, because nothing inside the owner survives SIGKILL. Standard library only.
"""

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path


def main(owner: int, directory: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        wait_for_end(owner)
    finally:
        end_server(directory)
        shutil.rmtree(directory, ignore_errors=True)


def wait_for_end(pid: int) -> None:
    try:
        select.select([os.pidfd_open(pid)], [], [])
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        # No pidfd on macOS and in some sandboxes: ask now and then.
        while is_alive(pid):
            time.sleep(0.2)


def end_server(directory: Path) -> None:
    """Return when no postmaster of this directory runs; killed if it does not end when told to."""
    pid = postmaster_of(directory)
    if pid is None:
        return
    # Immediate shutdown: nobody needs the data any more.
    os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + 10
    while is_alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.01)


def postmaster_of(directory: Path) -> int | None:
    try:
        pid = int((directory / "data" / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    # After a crash the file names a dead process, whose number another one may carry by now.
    command = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists() and not (command.exists() and os.fsencode(directory) in command.read_bytes()):
        return None
    return pid if is_alive(pid) else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
