"""What the servers of one run share, made once and copied: programs that their user may run, and data to start from.

with shared.folder():
    start(installation)     # here, and in every process started from here

Without such a folder each server has its own made, which takes longer than most tests.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.postgres import account
from tools.postgres.installations import Installation

VARIABLE = "TASKLIB_TEST_POSTGRES_SHARED"
WATCHDOG = Path(__file__).with_name("watchdog.py")


@contextmanager
def folder() -> Iterator[None]:
    """A folder that this process and those it starts share, removed with this process at the latest."""
    directory = account.make_directory(None)
    watchdog = watch(os.getpid(), directory)
    os.environ[VARIABLE] = str(directory)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        watchdog.terminate()
        watchdog.wait()


def watch(owner: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start what removes the directory, and ends a server in it, when the owner is gone or when it is terminated."""
    arguments = [sys.executable, "-I", "-S", str(WATCHDOG), str(owner), str(directory)]
    return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True)


def reachable_programs(installation: Installation, directory: Path) -> Path:
    """The folder of programs that the server's user may run: if need be a shared copy, or one in `directory`."""
    if (shared := _shared()) is None:
        return account.reachable(installation.bindir, directory)
    programs = shared / f"programs-{installation.version}"
    with _alone(programs):
        if (found := account.copied(installation.bindir, programs)).exists():
            return found
        return account.reachable(installation.bindir, programs)


def make_data(installation: Installation, bindir: Path, directory: Path) -> None:
    """A new `data` in the directory, with one superuser `postgres` whom anybody may be."""
    if (shared := _shared()) is None:
        run_initdb(bindir, directory)
        return
    original = shared / f"data-{installation.version}"
    with _alone(original):
        if not (original / "data").exists():
            run_initdb(bindir, original)
    _run(["cp", "-a", str(original / "data"), str(directory / "data")], directory)


def run_initdb(bindir: Path, directory: Path) -> None:
    options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
    _run([str(bindir / "initdb"), "-D", str(directory / "data"), *options], directory)


def _shared() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Make the directory if it is not there; other processes wait until this one has filled it."""
    with open(directory.with_suffix(".lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            account.make_directory(directory)
        yield


def _run(command: list[str], directory: Path) -> None:
    with open(directory / "log", "wb") as log:
        process = account.popen(command, directory, log)
    if process.wait() != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{(directory / 'log').read_text(errors='replace')}")
