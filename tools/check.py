"""Runs every check and says which failed; `make check ARGS="types sql"` runs only those whose name is given.

Exit status 0 means: formatted, linted, typed, layered, SQL valid, links alive, generated files up to date.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.problems import ROOT

CHECKS = {
    "types": ["mypy"],
    "pyright": ["pyright", "--warnings"],
    "interface": ["tools.check_interface"],
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "lint": ["ruff", "check", "--quiet", "."],
    "imports": ["tools.check_imports"],
    "sql": ["tools.check_sql"],
    "docs": ["tools.check_docs"],
    "generated": ["tools.check_generated"],
    "dashboard": ["tools.dashboard", "check"],
}


def main(names: list[str]) -> int:
    if unknown := set(names) - set(CHECKS):
        sys.exit(f"No such check: {', '.join(sorted(unknown))}. There are: {', '.join(CHECKS)}")
    # Two at a time: the type checkers take longest and come first.
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(run, names or CHECKS))
    failed = [name for name, passed in zip(names or CHECKS, results, strict=True) if not passed]
    if failed:
        print(f"\nFailed: {', '.join(failed)}. `make format` repairs format and some of lint.")
    return bool(failed)


def run(name: str) -> bool:
    """True if the check passed; its output is printed whole, and only if it did not."""
    started = time.monotonic()
    # `pyright --verifytypes` looks for the package with the first python on the PATH.
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", *CHECKS[name]],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    passed = done.returncode == 0
    mark, output = ("ok    ", "") if passed else ("FAILED", done.stdout)
    print(f"{mark} {name:10} {time.monotonic() - started:5.1f} s\n{output}", end="", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
