"""Runs the tests of integrations on supported versions of the other libraries: `make test-frameworks`.

Each line of VERSIONS is an environment of its own under `.versions/`.  Django has one for each of its versions: tests
run here and start Django's programs with that environment's interpreter, which they find in TASKLIB_FRAMEWORK_PYTHON.
All other libraries are tried together, at their lowest supported versions and at the newest that can be had, by tests
that run in the environment itself; so are the cluster engines, which have environments of their own.  A version whose
Python is not on this machine is left out, and named.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tools import promtool
from tools.postgres import available, start
from tools.problems import ROOT
from tools.versions import environments, pythons

DJANGO: Final = ("tests/frameworks/django",)
LIBRARIES: Final = (
    "tests/integration/web",  # FastAPI, Starlette, Litestar, Flask
    "tests/integration/observability",  # OpenTelemetry, Sentry, structlog, loguru, prometheus-client
    "tests/integration/test_alembic.py",  # Alembic, SQLAlchemy
    "tests/integration/test_enlist.py",  # SQLAlchemy, asyncpg, aiosqlite, psycopg
    "tests/integration/http/test_agents.py",  # mcp
    "tests/integration/test_pydantic_ai.py",
    "tests/acceptance/test_shop.py",  # FastAPI and SQLAlchemy in an application
)
CLUSTER: Final = ("tests/cluster",)  # Ray, Dask


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a framework, or a set of versions of many libraries."""

    name: str
    python: str
    """The lowest Python it runs on; the first one found here from there on is used."""
    install: Callable[[Path], Path]
    """Makes its environment with that Python; gives the interpreter there."""
    tests: tuple[str, ...]
    inside: bool = False
    """Whether the tests run in the environment itself."""
    libraries: tuple[str, ...] = ()
    """Those whose versions are said."""


def _django(number: str, *requirements: str) -> Callable[[Path], Path]:
    return partial(environments.with_requirements, label=f"django-{number}", wanted=requirements)


def _prometheus(_: Path) -> Path:
    promtool.take()  # where it cannot be had, its tests say so
    return Path(sys.executable)


VERSIONS: Final = (
    Version("django-5.2", "3.11", _django("5.2", "django>=5.2,<5.3", "django-tasks>=0.12"), DJANGO),
    Version("django-6.0", "3.12", _django("6.0", "django>=6.0,<6.1"), DJANGO),
    Version("django-6.1", "3.12", _django("6.1", "django>=6.1,<6.2"), DJANGO),
    Version("lowest", "3.11", environments.lowest, LIBRARIES, inside=True, libraries=environments.INTEGRATIONS),
    Version("newest", "3.13", environments.newest, LIBRARIES, inside=True, libraries=environments.INTEGRATIONS),
    Version("cluster-old", "3.11", environments.cluster_lowest, CLUSTER, inside=True, libraries=environments.ENGINES),
    Version("cluster-new", "3.12", environments.cluster_newest, CLUSTER, inside=True, libraries=environments.ENGINES),
    Version("prometheus", "3.11", _prometheus, ("tests/integration/observability/test_promtool.py",), inside=True),
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
        interpreter = version.install(found[python])
        if version.libraries:
            found_there = environments.installed(interpreter, version.libraries)
            print(" ".join(f"{name} {number}" for name, number in found_there.items()), flush=True)
        if not run(version, interpreter):
            failed.append(version.name)
    for line in left_out:
        print(f"not run: {line}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(version: Version, interpreter: Path) -> bool:
    """Whether all of its tests pass."""
    newest = available()[-1]
    with start(newest) as server:
        # An environment has no PostgreSQL of its own, and the plugin of an older anyio does not load beside pytest.
        environment = {**os.environ, "TASKLIB_TEST_POSTGRES": f"{newest.version}={server.url}"}
        command = [str(interpreter), "-m", "pytest", "-q", "-p", "no:anyio", *version.tests]
        if not version.inside:
            environment = {**os.environ, "TASKLIB_FRAMEWORK_PYTHON": str(interpreter)}
            command[0] = sys.executable
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
