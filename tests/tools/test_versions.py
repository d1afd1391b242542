"""`make test VERSIONS=all` finds what there is, and says what there is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.postgres import available
from tools.problems import ROOT
from tools.versions import __main__ as versions
from tools.versions import environments, pythons, releases


def test_an_interpreter_that_is_named_comes_first_and_one_that_does_not_work_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PYTHONS", f"{broken}:{tmp_path / 'absent'}:{sys.executable}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    assert pythons.find() == {f"{sys.version_info[0]}.{sys.version_info[1]}": Path(sys.executable)}


def test_one_without_the_gil_is_not_taken_for_the_plain_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = tmp_path / "python"
    says_so = """import ensurepip, sys, venv; sys.abiflags = "t"; exec(sys.argv[1])"""
    free.write_text(f"""#!/bin/sh\nexec {sys.executable} -c '{says_so}' "$2"\n""")
    free.chmod(0o755)
    monkeypatch.setenv("PYTHONS", str(free))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    assert pythons.find() == {}
    monkeypatch.setattr(pythons, "SUPPORTED", (f"{sys.version_info[0]}.{sys.version_info[1]}t",))
    assert list(pythons.find().values()) == [free]


def test_every_library_that_users_get_has_a_lowest_version() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in extras if name != "all" for line in extras[name])]

    assert set(environments.floors()) == {Requirement(line).name for line in wanted}


def test_what_fails_and_what_was_not_run_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(pythons, "find", lambda: {"3.11": Path(sys.executable)})
    monkeypatch.setattr(releases, "find", lambda: {available()[0].version: available()[0]})
    monkeypatch.setattr(environments, "pinned", lambda python, version: python)
    monkeypatch.setattr(environments, "lowest", lambda python: python)
    monkeypatch.setattr(versions, "_run", lambda run, arguments: run.label.startswith("lowest"))

    assert versions.main([]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert f"FAILED   Python 3.11, PostgreSQL {available()[0].version}" in lines
    assert "passed   lowest libraries, Python 3.11" in lines
    assert "not run  Python 3.14: not found here" in lines
    assert "not run  PostgreSQL 14: not found here" in lines
