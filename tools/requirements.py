"""What pip installs for developers: tasklib with its extras, and the dependency groups of pyproject.toml.

Standard library only: it is read before anything is installed, and by versions of pip that know no `--group`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ".[postgres,serve]"
"""tasklib as most users install it."""
TESTED = ".[postgres,serve,fast]"
"""tasklib as its tests need it."""


def pyproject() -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def group(name: str) -> list[str]:
    """The requirements of a dependency group, with those of the groups that it includes."""
    found: list[str] = []
    for entry in pyproject()["dependency-groups"][name]:
        found += [entry] if isinstance(entry, str) else group(entry["include-group"])
    return found
