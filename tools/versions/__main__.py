"""Runs unit, contract and worker tests on every supported Python and PostgreSQL, and with the lowest libraries.

Usage: make test VERSIONS=all [ARGS="pytest arguments"]

Interpreters are those named in PYTHONS (a path each, separated by colons), on the PATH and in pyenv; PostgreSQL comes
from wheels, the system and npm. What cannot be had is listed at the end as not run. The exit status is 0 if nothing
that ran has failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.postgres import Installation, start
from tools.problems import ROOT
from tools.versions import environments, pythons, releases

TESTS = ("tests/unit", "tests/contract", "tests/integration/worker")


@dataclass(frozen=True, slots=True)
class Run:
    """One combination: what is shown of it, its interpreter, and its database server."""

    label: str
    python: Path
    postgres: Installation


def main(arguments: list[str]) -> int:
    # A shell that starts us in the background has us ignore it, which every program of a test would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interpreters, servers = pythons.find(), releases.find()
    results = {run.label: _run(run, arguments) for run in _plan(interpreters, servers)}
    missing = [f"Python {version}" for version in pythons.SUPPORTED if version not in interpreters]
    missing += [f"PostgreSQL {version}" for version in releases.SUPPORTED if version not in servers]
    print()
    for label, passed in results.items():
        print(f"{'passed' if passed else 'FAILED':8} {label}")
    for label in missing:
        print(f"{'not run':8} {label}: not found here")
    return not all(results.values())


def _plan(interpreters: dict[str, Path], servers: dict[int, Installation]) -> list[Run]:
    """Every interpreter on the newest server, every other server with this interpreter, and the lowest libraries."""
    newest = max(servers)
    runs = [
        Run(f"Python {version}, PostgreSQL {newest}", environments.pinned(python, version), servers[newest])
        for version, python in interpreters.items()
    ]
    this = Path(sys.executable)
    runs += [Run(f"PostgreSQL {version}", this, servers[version]) for version in servers if version != newest]
    oldest = next(iter(interpreters))
    lowest = environments.lowest(interpreters[oldest])
    return [*runs, Run(f"lowest libraries, Python {oldest}", lowest, servers[newest])]


def _run(run: Run, arguments: list[str]) -> bool:
    print(f"\n── {run.label}", flush=True)
    workers = os.environ.get("TEST_WORKERS", str(os.cpu_count() or 1))
    # The plugin of an older anyio, which no test uses, does not load beside a newer pytest.
    command = [str(run.python), "-m", "pytest", "-q", "-p", "no:anyio", "-n", workers, "--dist", "loadgroup"]
    with start(run.postgres) as server:
        environment = os.environ | {"TASKLIB_TEST_POSTGRES": f"{run.postgres.version}={server.url}"}
        return subprocess.run([*command, *(arguments or TESTS)], cwd=ROOT, env=environment).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
