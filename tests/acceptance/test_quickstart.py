"""README and quickstart, followed as a reader would: files as printed, commands as printed, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tasklib import TaskQueue
from tests.acceptance.documents import FILE, NOT_RUN, ROOT, RUNS_UNTIL_STOPPED, Block, blocks_of
from tests.acceptance.run_document import EXAMPLE_URL, PRINTED, check_output
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import eventually


class Reader:
    """Somebody who does what a document says, in a folder of their own."""

    def __init__(self, folder: Path, postgres_url: str) -> None:
        self.folder = folder
        self._url = libpq_url(postgres_url)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKLIB_", "DATABASE_URL"))}
        programs = os.path.dirname(sys.executable)
        self._environment = kept | {"PATH": f"{programs}:{kept['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        self._started: list[subprocess.Popen[str]] = []

    def follow(self, block: Block) -> None:
        """Write the file, or type the commands."""
        if block.remark.startswith(NOT_RUN):
            return
        if block.language == "python":
            assert block.remark.startswith(FILE), f"{block.place}: in which file does the reader put it?"
            with open(self.folder / block.remark.removeprefix(FILE), "a") as file:
                file.write(block.text.replace(EXAMPLE_URL, self._url))
        elif block.remark == RUNS_UNTIL_STOPPED:
            self._start(block.text)
        else:
            done = subprocess.run(
                ["bash", "-e", "-c", block.text],
                cwd=self.folder,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=180,
            )
            assert done.returncode == 0, f"{block.place}: {done.stderr}"
            self._check(block.text, done.stdout)

    def stop(self) -> None:
        """Ctrl-C in every terminal where something runs, once it has nothing left to do."""
        for program in self._started:
            program.send_signal(signal.SIGINT)
        for program in self._started:
            assert program.wait(180) in (0, 130), program.args

    def _start(self, command: str) -> None:
        """In another terminal."""
        words = ["bash", "-c", f"exec {command.strip()}"]
        self._started.append(subprocess.Popen(words, cwd=self.folder, env=self._environment, text=True))

    def _check(self, command: str, printed: str) -> None:
        """What a file prints is what its comments say."""
        found = re.fullmatch(r"python (\w+\.py)\n", command)
        if found:
            check_output(PRINTED.findall((self.folder / found[1]).read_text()), printed.splitlines())


def test_the_quickstart_runs_as_printed(tmp_path: Path, newest_postgres_url: str) -> None:
    reader = Reader(tmp_path, newest_postgres_url)
    try:
        for block in blocks_of(ROOT / "docs" / "quickstart.md", "python", "bash"):
            reader.follow(block)
        with TaskQueue(f"sqlite:///{tmp_path}/small.db") as small:
            eventually(lambda: small.count(state="completed") == 1)
    finally:
        reader.stop()

    with TaskQueue(f"sqlite:///{tmp_path}/tasks.db") as queue:
        assert [task.result for task in queue.list()] == [{"value": 3}] * 2


def test_the_example_of_the_readme_runs_as_printed(tmp_path: Path, newest_postgres_url: str) -> None:
    reader = Reader(tmp_path, newest_postgres_url)
    example = blocks_of(ROOT / "README.md", "python")
    for block in example:
        reader.follow(block)

    reader.follow(Block(ROOT / "README.md", 1, "bash", "python app.py\n"))
    reader.follow(Block(ROOT / "README.md", 1, "bash", f'python -c "{WEB}"\n'))

    reader.follow(Block(ROOT / "README.md", 1, "bash", f'python -c "{DJANGO}"\n'))

    assert len(example) == 3


DJANGO = """
import django, settings
from django.conf import settings as used
from django.core.management import call_command
database = dict(ENGINE='django.db.backends.sqlite3', NAME='django.sqlite3')
apps = [*settings.INSTALLED_APPS, 'django_tasks']
used.configure(INSTALLED_APPS=apps, TASKS=settings.TASKS, DATABASES=dict(default=database), USE_TZ=True)
django.setup()
call_command('migrate', verbosity=0)
call_command('check')
call_command('tasklib_worker', batch=True)
"""
WEB = """
from fastapi.testclient import TestClient
from web import app, queue
with TestClient(app) as client:
    assert queue.wait(client.post('/welcome/ada').json(), timeout=180).result == {'value': 'welcome ada'}
"""
