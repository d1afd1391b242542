"""tools/check_docs.py fails on what it is there for, and on nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.check_docs import find_problems


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/guide.md").write_text("# A guide\n\n## Retry & back-off\n\n## Twice\n\n## Twice\n")
    return tmp_path


def messages(project: Path, text: str) -> list[str]:
    (project / "README.md").write_text(text)
    return [problem.message for problem in find_problems(project)]


def test_a_commit_that_is_not_in_the_history_is_found(project: Path) -> None:
    def git(*command: str) -> str:
        who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
        return subprocess.run(["git", *who, *command], cwd=project, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message=one")
    known = git("rev-parse", "--short=7", "HEAD").strip()
    text = f"# A guide\n\nMeasured at {known}, and at 0ddba11; 1048576 bytes, #0ddba11.\n"
    (project / "docs/guide.md").write_text(text)
    assert messages(project, "") == ["no such commit: 0ddba11"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("[g](docs/gone.md)", "dead link: docs/gone.md"),
        ("[g](docs/guide.md#gone)", "no such heading: docs/guide.md#gone"),
        ("[g](#gone)", "no such heading: #gone"),
        ("[ref]: docs/gone.md", "dead link: docs/gone.md"),
        ('<img src="gone.png">', "dead link: gone.png"),
        ("see /" + "root/tasklib", "path of one machine: /" + "root/"),
        ("pip install --index" + "-url x", "choice of a registry: --index" + "-url"),
        ("https://pypi.org/" + "simple/", "address of a registry: pypi.org/" + "simple"),
    ],
)
def test_fault_is_found(project: Path, text: str, message: str) -> None:
    assert messages(project, text) == [message]


@pytest.mark.parametrize(
    "text",
    [
        "[g](docs/guide.md) [h](docs/guide.md#retry--back-off) [t](docs/guide.md#twice-1) [w](https://example.com/x)",
        "```\n[g](gone.md)\n```\nand `[g](gone.md)`",
        "# Here\n\n[up](#here)",
        "a home/work/balance",
    ],
)
def test_what_is_alive_passes(project: Path, text: str) -> None:
    assert messages(project, text) == []


def test_a_page_without_a_link_in_the_index_is_found(project: Path) -> None:
    (project / "docs/index.md").write_text("# Pages\n")
    assert messages(project, "") == ["no link in docs/index.md"]
    (project / "docs/index.md").write_text("[A guide](guide.md#twice)\n")
    assert messages(project, "") == []
