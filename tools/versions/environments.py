"""Makes a virtual environment with tasklib and what its tests need, once for each interpreter and set of versions."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Final

from tools import requirements
from tools.problems import ROOT

FOLDER = ROOT / ".versions"
INTEGRATIONS: Final = (
    "aiosqlite",
    "alembic",
    "asyncpg",
    "fastapi",
    "flask",
    "litestar",
    "loguru",
    "mcp",
    "opentelemetry-api",
    "opentelemetry-instrumentation",
    "opentelemetry-sdk",
    "prometheus-client",
    "psycopg",
    "pydantic-ai-slim",
    "sentry-sdk",
    "sqlalchemy",
    "starlette",
    "structlog",
)
"""Libraries of others that users bring, or get by an extra; Django has an environment for each of its versions."""
ENGINES: Final = ("distributed", "ray")
"""Cluster engines, which are too large for the environment of everything else."""
FLOOR = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9][\w.]*)")


def pinned(python: Path, version: str) -> Path:
    """The interpreter of an environment with the versions of constraints.txt."""
    return _make(python, f"python-{version}", ROOT / "constraints.txt")


def lowest(python: Path) -> Path:
    """The interpreter of an environment in which each library that users get has the lowest version that we declare."""
    return _make(python, "lowest", _lowest())


def newest(python: Path) -> Path:
    """The interpreter of an environment in which each library has the newest version that can be had."""
    return _make(python, "newest", _newest())


def cluster(python: Path) -> Path:
    """The interpreter of an environment with the cluster engines, in the versions of constraints.txt."""
    return _make(python, "cluster", ROOT / "constraints.txt", extras="ray,dask")


def cluster_lowest(python: Path) -> Path:
    """The interpreter of an environment with the lowest versions of the cluster engines, and of all else."""
    return _make(python, "cluster-lowest", _lowest(), extras="ray,dask")


def cluster_newest(python: Path) -> Path:
    """The interpreter of an environment with the newest versions of the cluster engines, and of all else."""
    return _make(python, "cluster-newest", _newest(), extras="ray,dask")


def _lowest() -> Path:
    FOLDER.mkdir(exist_ok=True)
    constraints = FOLDER / "lowest.txt"
    # The tools stay as they are; everything else is left to the libraries, whose neighbours must be as old as they.
    tools = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("pytest")]
    lowered = [f"{name}=={floor}" for name, floor in (floors() | integration_floors()).items()]
    constraints.write_text("\n".join([*tools, *lowered]) + "\n")
    return constraints


def _newest() -> Path:
    FOLDER.mkdir(exist_ok=True)
    constraints = FOLDER / "newest.txt"
    constraints.write_text("".join(f"{name}>={floor}\n" for name, floor in integration_floors().items()))
    return constraints


def with_requirements(python: Path, *, label: str, wanted: tuple[str, ...]) -> Path:
    """The interpreter of an environment with tasklib, its driver for PostgreSQL, and these; nothing to test with."""
    folder = FOLDER / label
    mark, interpreter = folder / ".installed", folder / "bin" / "python"
    parts = (str(python), *wanted, (ROOT / "pyproject.toml").read_text())
    if _is_made(mark, hashed := _hash(*parts)):
        return interpreter
    pip = _empty(python, folder)
    subprocess.run([*pip, "hatchling", "editables"], cwd=ROOT, check=True)
    subprocess.run([*pip, "--no-build-isolation", "--editable", ".[postgres]", *wanted], cwd=ROOT, check=True)
    mark.write_text(hashed)
    return interpreter


def installed(interpreter: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The versions of these libraries in an environment."""
    ask = f"import importlib.metadata as m; print(*(m.version(name) for name in {names!r}))"
    told = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=True).stdout
    return dict(zip(names, told.split(), strict=True))


def integration_floors() -> dict[str, str]:
    """The lowest supported version of each of those that an extra does not bring, by name."""
    lines = [match for line in requirements.group("test") if (match := FLOOR.match(line))]
    return {match[1]: match[2] for match in lines if match[1] in INTEGRATIONS and match[1] not in floors()}


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
    if _is_made(mark, hashed := _hash(*map(str, parts))):
        return interpreter
    pip = [*_empty(python, folder), "--constraint", str(constraints)]
    subprocess.run([*pip, "hatchling", "editables"], cwd=ROOT, check=True)
    project = f"{requirements.TESTED.removesuffix(']')},{extras}]" if extras else requirements.TESTED
    tested = [project, *requirements.group("test")]
    subprocess.run([*pip, "--no-build-isolation", "--editable", *tested], cwd=ROOT, check=True)
    mark.write_text(hashed)
    return interpreter


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _is_made(mark: Path, hashed: str) -> bool:
    return mark.exists() and mark.read_text() == hashed


def _empty(python: Path, folder: Path) -> list[str]:
    """Make an empty environment; the beginning of a command that installs into it."""
    print(f"Setting up {folder.relative_to(ROOT)} …", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    return [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
