"""How every check reports: one line per problem with its place, then the remedy, then the exit status."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong at a line of a file."""

    path: Path
    line: int
    message: str


def report(problems: list[Problem], remedy: str) -> None:
    """Print the problems and end with status 1 if there are any."""
    for problem in sorted(problems):
        path = problem.path.relative_to(ROOT) if problem.path.is_relative_to(ROOT) else problem.path
        print(f"{path}:{problem.line}: {problem.message}")
    if problems:
        sys.exit(f"Remedy: {remedy}")


def project_files(root: Path) -> list[Path]:
    """Every file that is or may be committed; without git, all outside hidden and generated folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
        files = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path for path in root.rglob("*") if not is_generated(path.relative_to(root))]
    return sorted({path for path in files if path.is_file() and not path.is_symlink()})


def is_generated(path: Path) -> bool:
    hidden = path.parts[0].startswith(".") and path.parts[0] != ".ci"
    return hidden or bool({"__pycache__", "node_modules", "build", "dist"} & set(path.parts))
