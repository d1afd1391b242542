"""The set-up notices what changes the installed packages, and names no registry."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tools import bootstrap, pin, requirements
from tools.problems import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(requirements, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "constraints.txt").write_text((ROOT / "constraints.txt").read_text())
    return tmp_path


def test_a_new_pin_or_dependency_changes_the_fingerprint(project: Path) -> None:
    before = bootstrap.fingerprint()
    with open(project / "constraints.txt", "a") as pins:
        pins.write("extra==1.0\n")
    pinned = bootstrap.fingerprint()
    prints = {before, pinned}
    for place in ('"rich', '"pytest>'):  # what users get, and what developers get
        text = (project / "pyproject.toml").read_text().replace(place, f'"extra", {place}')
        (project / "pyproject.toml").write_text(text)
        prints.add(bootstrap.fingerprint())
    assert len(prints) == 4


def test_a_lint_rule_does_not(project: Path) -> None:
    before = bootstrap.fingerprint()
    with open(project / "pyproject.toml", "a") as file:
        file.write("\n[tool.other]\nx = 1\n")
    assert bootstrap.fingerprint() == before


def test_dev_includes_runtime(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "VENV", project)
    monkeypatch.setattr(bootstrap, "PYTHON", project / "pyproject.toml")
    bootstrap.stamp("dev").write_text("print")
    assert bootstrap.is_installed("runtime", "print")
    assert not bootstrap.is_installed("runtime", "another print")


def test_pins_come_from_pips_report_without_ourselves() -> None:
    names = [("Typing_Extensions", "4.1"), ("tasklib-queue", "0.1.0"), ("asyncpg", "0.32.0")]
    report = {"install": [{"metadata": {"name": name, "version": version}} for name, version in names]}
    assert pin.pinned(report) == ["asyncpg==0.32.0", "typing-extensions==4.1"]


def test_every_pin_can_be_installed_by_the_lowest_python() -> None:
    """An early 3.11 as Debian has it refuses what asks for a later one."""
    asked = [(each.name, SpecifierSet(each.metadata.get("Requires-Python") or "")) for each in distributions()]
    assert len(asked) > 100
    assert [name for name, pythons in asked if not pythons.contains("3.11.0")] == []


def test_a_group_has_what_it_includes() -> None:
    test, dev = requirements.group("test"), requirements.group("dev")
    assert set(test) < set(dev)
    assert all(isinstance(each, str) for each in dev)


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", line)] == []


def test_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()) - {"help"}
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert targets <= set(re.findall(r"^  make ([a-z-]+) ", shown, re.MULTILINE))


def test_no_usable_python_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for program in ("sh", "make"):
        (tmp_path / program).symlink_to(f"/bin/{program}" if program == "sh" else "/usr/bin/make")
    environment = {"PATH": str(tmp_path), "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(["make", "setup"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "tasklib needs Python 3.11 or newer" in done.stderr
