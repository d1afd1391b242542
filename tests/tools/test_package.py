"""What is released: the same bytes each time, with a bill of materials, by workflows with few rights."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tools import package, release, requirements, sbom
from tools.problems import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return package.build(tmp_path_factory.mktemp("dist"))


def test_a_second_build_gives_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = package.build(tmp_path, {"TZ": "Asia/Tokyo"}, umask=0o077)

    assert [file.name for file in again] == [file.name for file in built]
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in built]


def test_the_wheel_says_which_javascript_it_has_inside(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if "/sboms/" in name]
        bill = json.loads(wheel.read(name))
        code = b"".join(wheel.read(name) for name in wheel.namelist() if name.endswith(".js"))

    assert re.fullmatch(r"tasklib_queue-[\d.]+\.dist-info/sboms/dashboard\.cdx\.json", name)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    wanted = json.loads((ROOT / "dashboard" / "package.json").read_text())["dependencies"]
    listed = {each["name"]: each for each in bill["components"]}
    assert set(wanted) <= set(listed)
    assert b"preact" in code
    for each in listed.values():
        assert each["purl"] == f"pkg:npm/{each['name'].replace('@', '%40')}@{each['version']}"
        assert re.fullmatch(r"[0-9a-f]{128}", each["hashes"][0]["content"])


def test_what_is_for_development_only_is_not_in_the_bill() -> None:
    components = json.loads(sbom.document(sbom.LOCK.read_text()))["components"]

    assert not {"vite", "typescript", "rolldown"} & {each["name"] for each in components}


def test_both_files_have_the_built_dashboard(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel, tarfile.open(built[1]) as sdist:
        inside = wheel.namelist(), sdist.getnames()

    assert [any(name.endswith("http/static/index.html") for name in names) for names in inside] == [True, True]
    assert not [name for names in inside for name in names if "node_modules" in name]


def test_the_metadata_is_of_a_version_that_indexes_accept(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        metadata = wheel.read(name).decode()

    assert metadata.startswith("Metadata-Version: 2.4\nName: tasklib-queue\n")


def test_a_file_that_differs_is_named(tmp_path: Path) -> None:
    paths = [tmp_path / "one.whl", tmp_path / "other.whl"]
    for path, text in zip(paths, ("a", "b"), strict=True):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("same.txt", "same")
            archive.writestr("changed.txt", text)

    assert package.differences(*paths) == "changed.txt"


def test_a_tag_must_be_the_version_that_everything_names() -> None:
    version = requirements.pyproject()["project"]["version"]

    assert [each for each in release.disagreements(f"v{version}") if "CHANGELOG" not in each] == []
    assert release.disagreements("v99.0.0")[:2] == [
        f"pyproject.toml says {version}",
        f"tasklib.__version__ is {version}",
    ]
    assert release.disagreements("1.2") == ["a tag is v and a version, as in v1.2.3 or v1.2.3rc1"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_what_it_uses_and_asks_for_few_rights(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())

    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert [name for name, note in used if not (re.search(r"@[0-9a-f]{40}$", name) and re.match(r" # v\d", note))] == []
    assert workflow["permissions"] in ({}, {"contents": "read"})
    writing = {name for name, job in workflow["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing <= {"publish", "image"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_there_is(path: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = path.read_text()

    assert set(re.findall(r"\bmake (\w+)", text)) <= set(targets)
    for file in (*re.findall(r"run: (\.ci/\w+)", text), *re.findall(r"--file (\S+)", text)):
        assert (ROOT / file).exists()
    for module in re.findall(r"python -m (tools\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_only_what_was_tried_is_published() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]

    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    commands = [step.get("run") for step in jobs["build"]["steps"]]
    assert commands.index(".ci/run") < commands.index("make package")
    assert not any("checkout" in step.get("uses", "") for step in jobs["publish"]["steps"])
