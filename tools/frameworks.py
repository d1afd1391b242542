"""Runs the tests of integrations on every supported version of their frameworks: `make test-frameworks`.

Each line of VERSIONS is an environment of its own under `.versions/`, with tasklib and one version of a framework.  The
tests run here and start the framework's own programs with that environment's interpreter, which they find in
TASKLIB_FRAMEWORK_PYTHON.  A version whose Python is not on this machine is left out, and named.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.problems import ROOT
from tools.versions import pythons
from tools.versions.environments import FOLDER


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a framework."""

    name: str
    python: str
    """The lowest Python it runs on; the first one found here from there on is used."""
    requirements: tuple[str, ...]
    tests: str


VERSIONS: Final = (
    Version("django-5.2", "3.11", ("django>=5.2,<5.3", "django-tasks>=0.12"), "tests/frameworks/django"),
    Version("django-6.0", "3.12", ("django>=6.0,<6.1",), "tests/frameworks/django"),
    Version("django-6.1", "3.12", ("django>=6.1,<6.2",), "tests/frameworks/django"),
)


def main(chosen: list[str]) -> int:
    """Run the versions whose names contain one of the words given, or all."""
    found = pythons.find()
    left_out: list[str] = []
    failed: list[str] = []
    for version in VERSIONS:
        if chosen and not any(word in version.name for word in chosen):
            continue
        python = next((number for number in found if number >= version.python), None)
        if python is None:
            left_out.append(f"{version.name}: no Python {version.python} or newer was found")
            continue
        print(f"\n{version.name} on Python {python}", flush=True)
        environment = {**os.environ, "TASKLIB_FRAMEWORK_PYTHON": str(install(version, found[python]))}
        command = [sys.executable, "-m", "pytest", "-q", version.tests]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(version.name)
    for line in left_out:
        print(f"not run: {line}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def install(version: Version, python: Path) -> Path:
    """The interpreter of the environment of a version, made if it is missing or was made for other requirements."""
    folder = FOLDER / version.name
    mark, interpreter = folder / ".installed", folder / "bin" / "python"
    parts = (str(python), *version.requirements, (ROOT / "pyproject.toml").read_text())
    wanted = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    if not mark.exists() or mark.read_text() != wanted:
        print(f"Setting up {folder.relative_to(ROOT)} …", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip = [str(interpreter), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "hatchling", "editables"], cwd=ROOT, check=True)
        subprocess.run(
            [*pip, "--no-build-isolation", "--editable", ".[postgres]", *version.requirements], cwd=ROOT, check=True
        )
        mark.write_text(wanted)
    return interpreter


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
