"""Makes a virtual environment with tasklib and what its tests need, once for each interpreter and set of versions."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from tools import requirements
from tools.problems import ROOT

FOLDER = ROOT / ".versions"
FLOOR = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9][\w.]*)")


def pinned(python: Path, version: str) -> Path:
    """The interpreter of an environment with the versions of constraints.txt."""
    return _make(python, f"python-{version}", ROOT / "constraints.txt")


def lowest(python: Path) -> Path:
    """The interpreter of an environment in which each library that users get has the lowest version that we declare."""
    FOLDER.mkdir(exist_ok=True)
    constraints = FOLDER / "lowest.txt"
    # The tools stay as they are; everything else is left to the libraries, whose neighbours must be as old as they.
    tools = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("pytest")]
    lowered = [f"{name}=={floor}" for name, floor in floors().items()]
    constraints.write_text("\n".join([*tools, *lowered]) + "\n")
    return _make(python, "lowest", constraints)


def cluster(python: Path) -> Path:
    """The interpreter of an environment with the cluster engines, which are too large for every other one."""
    return _make(python, "cluster", ROOT / "constraints.txt", extras="ray,dask")


def floors() -> dict[str, str]:
    """The lowest version of each library that users get, by name."""
    project = requirements.pyproject()["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in extras for line in extras[name])]
    return {match[1]: match[2] for line in wanted if (match := FLOOR.match(line))}


def _make(python: Path, label: str, constraints: Path, extras: str = "") -> Path:
    folder = FOLDER / label
    mark, interpreter = folder / ".installed", folder / "bin" / "python"
    parts = (python, (ROOT / "pyproject.toml").read_text(), constraints.read_text(), extras)
    wanted = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return interpreter
    print(f"Setting up {folder.relative_to(ROOT)} …", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    pip = [str(interpreter), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    pip += ["--constraint", str(constraints)]
    subprocess.run([*pip, "hatchling", "editables"], cwd=ROOT, check=True)
    project = f"{requirements.TESTED.removesuffix(']')},{extras}]" if extras else requirements.TESTED
    tested = [project, *requirements.group("test")]
    subprocess.run([*pip, "--no-build-isolation", "--editable", *tested], cwd=ROOT, check=True)
    mark.write_text(wanted)
    return interpreter
