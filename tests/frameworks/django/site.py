"""The project in processes of its own: its manage.py, its worker, and what Python code sees there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fixtures import python

PROJECT = Path(__file__).parent / "project"
PYTHON = os.environ.get("TASKLIB_FRAMEWORK_PYTHON", sys.executable)
"""The interpreter of the framework's version to test with; see tools/frameworks.py."""


class Site:
    """One project with databases of its own."""

    def __init__(self, databases: dict[str, Any], folder: Path, **options: Any) -> None:
        self.folder = folder
        self.databases = databases
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "TASKLIB_"))},
            "PROJECT_DATABASES": json.dumps(databases),
            "PROJECT_OPTIONS": json.dumps(options),
            "PROJECT_SIGNALS": str(folder / "signals"),
            "PYTHONUNBUFFERED": "1",
        }

    def manage(self, *arguments: str, given: str | None = None) -> str:
        """What a command of manage.py prints; one that fails is a failure of the test."""
        done = python.run(
            [PYTHON, "manage.py", *arguments],
            cwd=PROJECT,
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, code: str) -> Any:
        """The value that Python code of the project prints last, as JSON."""
        return json.loads(self.manage("shell", "-v0", given=code).strip().splitlines()[-1])

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A worker that has begun; it is stopped at the end of the block, unless it has ended."""
        log = (self.folder / f"worker-{len(list(self.folder.iterdir()))}").open("w")
        process = python.popen(
            [PYTHON, "manage.py", "tasklib_worker", *arguments],
            cwd=PROJECT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Worker "), f"{line}{Path(log.name).read_text()}"
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate()
            log.close()

    def signals(self, name: str) -> list[list[str]]:
        """The signals that receivers of the project have seen for tasks of a function, in order."""
        lines = (self.folder / "signals").read_text().splitlines()
        return [line.split() for line in lines if line.split()[1] == name]


def sqlite(folder: Path) -> dict[str, Any]:
    """Two files."""
    options = {"transaction_mode": "IMMEDIATE", "timeout": 30}
    return {
        alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / f"{alias}.sqlite3"), "OPTIONS": options}
        for alias in ("default", "other")
    }


def postgres(url: str, name: str) -> dict[str, Any]:
    """A schema of a server for the project itself, and names for the databases that its tests make."""
    parts = urlsplit(url)
    schema = dict(parse_qsl(parts.query)).get("schema")
    reach = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": dict(parse_qsl(parts.query)).get("host") or parts.hostname or "",
        "PORT": str(parts.port or ""),
    }
    options = {"OPTIONS": {"options": f"-c search_path={schema}"}} if schema else {}
    return {alias: {**reach, **options, "TEST": {"NAME": f"test_{name}_{alias}"}} for alias in ("default", "other")}
