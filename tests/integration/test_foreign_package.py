"""Another distribution called `tasklib` in the same folder is reported wherever a person would notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.documents import ROOT

THEIRS = '"""A client for something else."""\n__all__ = ["TaskWarrior", "Task"]\nclass TaskWarrior: ...\n'
REMEDY = "pip uninstall tasklib, then pip install --force-reinstall --no-deps tasklib-queue"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages with our package, where the other one was installed before ours."""
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(
        ROOT / "src" / "tasklib", folder / "tasklib", ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    information = folder / "tasklib-2.5.1.dist-info"
    information.mkdir()
    (information / "RECORD").write_text("tasklib-2.5.1.dist-info/METADATA,,\ntasklib/__init__.py,sha256=x,98\n")
    (folder / "tasklib_queue-0.1.0.dist-info").mkdir()
    return folder


@pytest.fixture
def overwritten(installed: Path, tmp_path: Path) -> Path:
    """The same, where the other one came last."""
    folder = tmp_path / "site-packages"
    shutil.copytree(installed, folder)
    (folder / "tasklib" / "__init__.py").write_text(THEIRS)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TASKLIB_")}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=folder)


def test_import_warns_with_the_remedy(installed: Path) -> None:
    done = run(installed, "-c", "import tasklib; print(tasklib.TaskQueue.__name__)")

    assert done.stdout == "TaskQueue\n"
    assert "RuntimeWarning: the distribution 'tasklib 2.5.1' has files in the same folder" in done.stderr
    assert REMEDY in done.stderr


def test_doctor_reports_it(installed: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    assert run(installed, "-m", "tasklib", "migrate", "--dsn", url).returncode == 0

    done = run(installed, "-W", "ignore", "-m", "tasklib", "doctor", "--json", "--dsn", url)

    (found,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, found["code"], found["remedy"]) == (1, "foreign-package", REMEDY)


@pytest.mark.parametrize("command", [["--version"], ["doctor"], ["worker", "app"]])
def test_an_overwritten_program_says_so_in_one_line(overwritten: Path, command: list[str]) -> None:
    done = run(overwritten, "-c", "import sys; from tasklib.cli.main import main; sys.exit(main())", *command)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the distribution 'tasklib 2.5.1' has files")
    assert done.stderr.endswith(f"{REMEDY}\n")
    assert done.stderr.count("\n") == 1


def test_an_overwritten_library_cannot_be_imported(overwritten: Path) -> None:
    shutil.rmtree(overwritten / "tasklib-2.5.1.dist-info")  # as where it lies in another folder of the path

    done = run(overwritten, "-c", "from tasklib.queue import TaskQueue")

    assert "ImportError: the module tasklib" in done.stderr
    assert f"does not come from tasklib-queue, but from another distribution: {REMEDY}" in done.stderr


def test_without_it_nothing_is_said(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    shutil.copytree(installed, folder)
    (folder / "tasklib-2.5.1.dist-info" / "RECORD").write_text("something/else.py,,\n")

    assert run(folder, "-W", "error", "-c", "import tasklib, tasklib.queue").stderr == ""
