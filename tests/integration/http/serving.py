"""`tasklib serve` as a process of its own on a free port of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.fixtures import python
from tests.fixtures.waiting import PATIENCE, eventually


class Server:
    """Starts on entering and stops in order on leaving; `code` is how it ended."""

    tasklib = (sys.executable, "-m", "tasklib")

    def __init__(self, database_url: str, folder: Path, *options: str) -> None:
        self.environment = os.environ | {"DATABASE_URL": database_url}
        self.environment.pop("TASKLIB_DATABASE_URL", None)
        self._log = folder / "serve.log"
        self._options = options
        self.code: int | None = None
        self._is_told = False

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def __enter__(self) -> Self:
        command = [*self.tasklib, "serve", "--port", "0", *self._options]
        with self._log.open("w") as log:
            self._process = python.popen(command, env=self.environment, stderr=log, stdout=log)
        self._is_told = False
        found = eventually(lambda: re.search(r"serving on (http://\S+);", self.log))
        self.url = found[1]
        return self

    def stop(self) -> None:
        """Tell it to stop, once: a second signal may meet a program that has taken its handlers down already."""
        if not self._is_told:
            self._is_told = True
            self._process.send_signal(signal.SIGTERM)

    def __exit__(self, *_: object) -> None:
        self.stop()
        try:
            self.code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"it did not stop: {self.log}") from None
