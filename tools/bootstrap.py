"""Leaves a `.venv` in which tasklib is installed as constraints.txt says; does nothing when it already is.

Usage: python -m tools.bootstrap runtime | dev

`runtime` installs what a user of tasklib gets, `dev` adds the tools and test databases. Standard library
only, because it runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from tools import dashboard, requirements

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PROFILES = ("runtime", "dev")


def main(profile: str) -> None:
    """Exit with status 0 only when `profile` is installed and the dashboard is built."""
    wanted = fingerprint()
    if is_installed(profile, wanted) and dashboard.is_built():
        return
    # Two make commands at once must not install into one environment; the second finds the work done. The
    # lock is on the project's folder: .venv may be made anew below.
    fcntl.flock(os.open(ROOT, os.O_RDONLY), fcntl.LOCK_EX)
    if not is_installed(profile, wanted):
        install(profile)
        stamp(profile).write_text(wanted)
    # Its sources change more often than what is installed.
    run("-m", "tools.dashboard") or sys.exit("Building the dashboard failed; the lines above say why.")


def fingerprint() -> str:
    """What decides the installed set: our metadata, the pins, the interpreter, and where the code lies."""
    # Only these tables, so that a change of a lint rule does not reinstall.
    tables = [requirements.pyproject()[name] for name in ("project", "build-system", "dependency-groups")]
    metadata = json.dumps(tables, sort_keys=True)
    pins = (ROOT / "constraints.txt").read_text()
    return hashlib.sha256(f"{metadata}\n{pins}\n{sys.version}\n{ROOT}".encode()).hexdigest()


def is_installed(profile: str, wanted: str) -> bool:
    """True if `profile`, or the larger `dev`, was installed for this fingerprint."""
    stamps = {stamp(profile), stamp("dev")}
    return PYTHON.exists() and any(path.exists() and path.read_text() == wanted for path in stamps)


def stamp(profile: str) -> Path:
    return VENV / f".installed-{profile}"


def install(profile: str) -> None:
    print(f"Setting up .venv ({profile}) with Python {sys.version.split()[0]} …", flush=True)
    # Make runs this file with .venv's own interpreter if that works; another one means there is none, it is
    # broken, or the caller chose a different Python.
    if Path(sys.prefix).resolve() != VENV:
        venv.create(VENV, symlinks=True, clear=True)
    if not run("-m", "pip", "--version", quiet=True):
        run("-m", "ensurepip", "--default-pip", quiet=True) or sys.exit("Could not put pip into .venv.")
    # Python compiles what is imported, a small part of all that is installed.
    quick = ["-qq", "--disable-pip-version-check", "--no-compile"]
    pip = ["-m", "pip", "install", *quick, "--constraint", "constraints.txt"]
    # The build backend is installed first and used in place: the pins hold for it too, and it saves an
    # isolated environment. The same goes for Node, where the machine has none.
    backend = ["hatchling", "editables", *([] if dashboard.machine_has_node() else [dashboard.NODE_WHEEL])]
    done = run(*pip, *backend) and run(*pip, "--no-build-isolation", "--editable", *wanted(profile))
    if not done:
        sys.exit("Installing failed; the lines above say why. `make clean` starts from nothing.")


def wanted(profile: str) -> list[str]:
    """What pip is asked to install."""
    if profile == "runtime":
        return [requirements.RUNTIME]
    return [requirements.TESTED, *requirements.group("dev")]


def run(*arguments: str, quiet: bool = False) -> bool:
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run([PYTHON, *arguments], cwd=ROOT, stdout=output, stderr=output).returncode == 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROFILES:
        sys.exit(__doc__)
    main(sys.argv[1])
