"""What is shipped for deployment is well-formed, and calls the program as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def containers() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        for document in documents(path):
            yield from document["spec"].get("template", {}).get("spec", {}).get("containers", ())


def commands() -> list[list[str]]:
    """Every call of the program, as a list of words."""
    services = documents(DEPLOY / "compose.yaml")[0]["services"].values()
    found = [service["command"] for service in services if "command" in service]
    found += [container["args"] for container in containers()]
    for unit in UNITS:
        found += [line.split()[1:] for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)]
    return [list(map(str, words)) for words in found]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_and_their_options_exist(words: list[str]) -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    section = re.search(rf"^### `tasklib {words[0]}`$(.*?)(?=^##|\Z)", reference, re.MULTILINE | re.DOTALL)
    assert section is not None, f"there is no command {words[0]}"
    for option in (word for word in words if word.startswith("--")):
        assert f"`{option}" in section[1], f"tasklib {words[0]} has no option {option}"


def test_there_are_three_workers_with_probes_that_are_not_root() -> None:
    (deployment,) = [each for each in documents(DEPLOY / "kubernetes" / "worker.yaml") if each["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (worker,) = spec["containers"]
    assert deployment["spec"]["replicas"] == 3
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(worker)
    assert spec["securityContext"]["runAsNonRoot"]
    grace = int(worker["args"][worker["args"].index("--grace") + 1])
    assert spec["terminationGracePeriodSeconds"] > grace


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_what_systemd_understands(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    # Its own paths, so that only the form is judged and not what is installed here.
    text = unit.read_text().replace("/opt/app/.venv/bin/tasklib", "/bin/true")
    text = re.sub(r"^(User|Group|EnvironmentFile|WorkingDirectory)=.*\n", "", text, flags=re.MULTILINE)
    copy = tmp_path / unit.name.replace("@.", "@app.tasks.")
    copy.write_text(text)
    said = subprocess.run([program, "verify", str(copy)], capture_output=True, text=True, check=False).stderr
    assert [line for line in said.splitlines() if unit.name.split("@")[0].removesuffix(".service") in line] == []


def test_the_image_has_no_command_that_is_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]
    assert all(re.match(r"[A-Z]+ |#|\s|$", line) for line in lines)
