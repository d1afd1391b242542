"""Finds the interpreters of every supported Python on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def find() -> dict[str, Path]:
    """A working interpreter of each supported version, oldest first: named in PYTHONS, on the PATH, or in pyenv."""
    found: dict[str, Path] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version in SUPPORTED:
            found.setdefault(version, candidate)
    return {version: found[version] for version in SUPPORTED if version in found}


def _candidates() -> Iterator[Path]:
    yield from map(Path, filter(None, os.environ.get("PYTHONS", "").split(os.pathsep)))
    for version in SUPPORTED:
        if program := shutil.which(f"python{version}"):
            yield Path(program)
        root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        yield from sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)


def _version(program: Path) -> str | None:
    """`3.12` of a program that is an interpreter and can make virtual environments; None of any other.

    One without the GIL is `3.14t`, also where it is installed under the plain name.
    """
    code = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2] + 't' * ('t' in sys.abiflags))"
    try:
        answer = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=30)
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
