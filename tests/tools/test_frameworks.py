"""`make test-frameworks` runs what is chosen and says what it could not run; docs/installing.md says what it tries."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.acceptance.documents import ROOT, tables_of
from tools import frameworks, requirements
from tools.versions import environments, pythons

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_failure_and_what_was_not_run_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(version: frameworks.Version, interpreter: Path) -> bool:
        ran.append(version.name)
        return version.name != "django-5.2"

    made = [dataclasses.replace(each, install=lambda python: python) for each in frameworks.VERSIONS]
    newer = dataclasses.replace(made[1], name="django-9.9", python="9.9")
    monkeypatch.setattr(frameworks, "VERSIONS", (*made, newer))
    monkeypatch.setattr(frameworks, "run", run)
    monkeypatch.setattr(pythons, "find", lambda: {HERE: Path(sys.executable)})

    assert frameworks.main(["5.2", "9.9", "prometheus"]) == 1

    assert ran == ["django-5.2", "prometheus"]
    said = capsys.readouterr().out
    assert "not run: django-9.9: no Python 9.9 or newer was found" in said
    assert "failed: django-5.2" in said


def test_every_library_has_a_lowest_version_and_is_on_the_page() -> None:
    lowest = environments.integration_floors() | environments.floors()
    table = next(rows for rows in tables_of(ROOT / "docs" / "installing.md") if rows[0][0] == "Django")

    shown = {row[0].partition(" ")[0].lower(): row[1] for row in table if row[0] != "Django"}
    assert shown == {name: lowest[name] for name in (*environments.INTEGRATIONS, *environments.ENGINES)}


def test_every_library_that_an_extra_brings_is_tried_at_its_lowest_and_newest_version() -> None:
    """Django in environments of its own; the rest is the program itself, which `make test VERSIONS=all` tries so."""
    extras = requirements.pyproject()["project"]["optional-dependencies"]
    brought = {Requirement(line).name for name, lines in extras.items() if name != "all" for line in lines}
    itself = {"django", "django-tasks", "uvicorn", "httptools", "uvloop", "psycopg-pool"}

    assert brought - itself == {*environments.INTEGRATIONS, *environments.ENGINES} & brought
    tried = {name for version in frameworks.VERSIONS for name in version.libraries}
    assert tried == {*environments.INTEGRATIONS, *environments.ENGINES}


def test_the_versions_of_an_environment_can_be_asked() -> None:
    found = environments.installed(Path(sys.executable), environments.INTEGRATIONS)

    assert set(found) == set(environments.INTEGRATIONS)
    assert all(number[0].isdigit() for number in found.values())
