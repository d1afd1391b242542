"""The page about Django, followed as a reader would: a new project, its files, its commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.acceptance.documents import FILE, ROOT, blocks_of
from tests.fixtures import python
from tests.fixtures.waiting import eventually
from tests.frameworks.django.site import PYTHON

PAGE = ROOT / "docs" / "integrations" / "django.md"
TODAY = subprocess.run(
    [PYTHON, "-c", "import django; print(*django.VERSION[:2])"], capture_output=True, text=True, check=True
).stdout.split()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Has done what the page says first, up to the project's first task."""
    reader = Reader(tmp_path)
    reader.run("-m", "django", "startproject", "mysite", ".")
    reader.run("manage.py", "startapp", "shop")
    blocks = blocks_of(PAGE, "python")
    assert all(block.remark.startswith(FILE) for block in blocks)
    for block in blocks[:2]:
        reader.write(block.remark, block.text)
    reader.run("manage.py", "migrate", "-v0")
    return reader


def test_a_new_project_does_what_the_page_says(reader: Reader) -> None:
    enqueued = reader.run(
        "manage.py", "shell", "-c", "from shop.tasks import welcome; print(welcome.enqueue('Ada').id)"
    )
    reader.run("manage.py", "tasklib_worker", "--batch")
    asked = f"from shop.tasks import welcome; print(welcome.get_result('{enqueued.split()[-1]}').return_value)"
    assert reader.run("manage.py", "shell", "-c", asked).splitlines()[-1] == "Welcome, Ada!"

    for block in blocks_of(PAGE, "python")[2:]:
        reader.write(block.remark, block.text)
    reader.run("manage.py", "check")
    reader.run("manage.py", "makemigrations", "--check", "--dry-run")
    reader.run("manage.py", "test")
    enqueued = reader.run(
        "manage.py", "shell", "-c", "from shop.tasks import gallery; print(gallery.enqueue(['a', 'b']).id)"
    )
    for _ in range(3):  # until it waits, its children, and the rest of it
        reader.run("manage.py", "tasklib_worker", "--batch")
    asked = f"from shop.tasks import gallery; print(gallery.get_result('{enqueued.split()[-1]}').return_value)"
    assert reader.run("manage.py", "shell", "-c", asked).splitlines()[-1] == "['small-a', 'small-b']"
    stopped = "from shop.tasks import welcome; from shop.operations import stop_everything as s; "
    stopped += "print(s(welcome.enqueue('Bob').id)[0].cancelled)"
    assert reader.run("manage.py", "shell", "-c", stopped).splitlines()[-1] == "1"


def test_a_worker_starts_anew_when_code_changes(reader: Reader, tmp_path: Path) -> None:
    log, tasks = tmp_path / "log", tmp_path / "shop" / "tasks.py"

    def begun() -> int:
        return log.read_text().count("Worker ")

    with log.open("w") as output, reader.start("manage.py", "tasklib_worker", "--reload", output=output) as worker:
        try:
            eventually(lambda: begun() == 1)
            reader.write("shop/tasks.py", "\n\n@task\ndef added():\n    return 'new code'\n")
            # A change before the first look at the files would go unnoticed.
            eventually(lambda: tasks.touch() or begun() > 1)
            made = reader.run("manage.py", "shell", "-c", "from shop.tasks import added; print(added.enqueue().id)")
            asked = f"from shop.tasks import added; print(added.get_result('{made.split()[-1]}')._return_value)"
            eventually(lambda: reader.run("manage.py", "shell", "-c", asked).splitlines()[-1] == "new code")
        finally:
            worker.terminate()
            worker.wait()


class Reader:
    """Somebody with an empty folder and the page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "TASKLIB_"))}
        self._environment = {**kept, "PYTHONPATH": str(folder)}

    def run(self, *arguments: str) -> str:
        """What a command prints; it must succeed."""
        command = [PYTHON, *arguments]
        done = python.run(command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *arguments: str, output: IO[str]) -> subprocess.Popen[str]:
        """A program that goes on, in a process of its own, with its output in a file."""
        command = [PYTHON, *arguments]
        return subprocess.Popen(
            command, cwd=self._folder, env=self._environment, stdout=output, stderr=output, text=True
        )

    def write(self, remark: str, text: str) -> None:
        """Put a block at the end of its file, in the form for this version of Django."""
        if TODAY[0] == "5":
            text = text.replace("from django.tasks import", "from django_tasks import")
            text = text.replace('"tasklib.contrib.django"]', '"tasklib.contrib.django", "django_tasks"]')
        with (self._folder / remark.removeprefix(FILE)).open("a") as file:
            file.write(text)
