"""What is shipped for deployment is well-formed, and calls the program as it is."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import yaml

from tasklib.cli.main import main
from tests.fixtures import python

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
PROBES = ("livenessProbe", "readinessProbe")
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
CHART = DEPLOY / "helm" / "tasklib"
TEMPLATES = sorted((CHART / "templates").iterdir())
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


def test_each_kind_of_process_has_a_database_role_of_its_own() -> None:
    """The service reads tokens and writes the audit log, which a worker's role may not."""
    secrets = {
        container["name"]: [each["secretRef"]["name"] for each in container["envFrom"]] for container in containers()
    }
    assert secrets == {"migrate": ["tasklib-owner"], "worker": ["tasklib"], "serve": ["tasklib-serve"]}
    guide = (DEPLOY / "README.md").read_text()
    assert all(f"create secret generic {name} " in guide for (name,) in secrets.values())


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


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_well_formed_and_let_tasks_finish(unit: Path) -> None:
    parsed = configparser.RawConfigParser(strict=True)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit.read_text())
    assert parsed.sections() == ["Unit", "Service", "Install"]
    start = parsed["Service"]["ExecStart"].split()
    grace = int(start[start.index("--grace") + 1]) if "--grace" in start else 10
    assert int(parsed["Service"]["TimeoutStopSec"]) > grace


def test_the_image_is_built_from_what_it_copies(tmp_path: Path) -> None:
    copied = [line.split()[1:-1] for line in DOCKERFILE.read_text().splitlines() if re.match("COPY (?!--)", line)]
    for name in (name for names in copied for name in names):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("node_modules", "__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    python.run(build, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"tasklib/http/static/index.html", "tasklib/storage/postgres/sql/tasks.sql", "tasklib/py.typed"} <= set(
        names
    )


def test_compose_runs_a_module_that_is_there() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    folder, module = re.findall(r"\$\{TASKS_\w+:-([^}]+)\}", text)
    assert (DEPLOY / folder / f"{module}.py").exists()


def test_the_service_answers_the_probes_that_ask_for_it(sqlite_url: str) -> None:
    """As compose and Kubernetes start it, with their own addresses, and asked as they ask."""
    compose = documents(DEPLOY / "compose.yaml")[0]["services"]["serve"]
    (served,) = [each for each in containers() if each["name"] == "serve"]
    probes = [served[kind]["httpGet"] for kind in PROBES]
    asked = re.search(r"urlopen\('http://([^:]+):8000(/\w+)'\)", compose["healthcheck"]["test"][-1])
    assert asked is not None
    for words, requests in (
        (compose["command"], [asked.groups()]),
        (served["args"], [(probe["httpHeaders"][0]["value"], probe["path"]) for probe in probes]),
    ):
        with serving(words, sqlite_url) as url:
            for host, path in requests:
                assert httpx.get(f"{url}{path}", headers={"Host": host}, timeout=60).status_code == 200


def test_an_autoscaler_finds_the_number_it_is_told_to_read(sqlite_url: str) -> None:
    (scaled,) = [each for each in documents(DEPLOY / "kubernetes" / "keda.yaml") if each["kind"] == "ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    (served,) = [each for each in containers() if each["name"] == "serve"]
    assert main(["submit", "job", "--database-url", sqlite_url]) == 0
    with serving(served["args"], sqlite_url) as url:
        path = trigger["metadata"]["url"].removeprefix("http://tasklib")
        token = make_token(sqlite_url)
        headers = {"Host": "tasks.example.com", "Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{url}{path}", headers=headers, timeout=60)
        assert answer.json()[trigger["metadata"]["valueLocation"]] == 1


def make_token(database_url: str) -> str:
    """What `tasklib token create keda --role viewer` prints, once."""
    words = ["token", "create", "keda", "--role", "viewer", "--database-url", database_url, "--json"]
    said = python.run([sys.executable, "-m", "tasklib", *words], check=True, capture_output=True, text=True).stdout
    token: str = json.loads(said)["token"]
    return token


def test_the_chart_has_every_value_it_uses_and_its_schema_accepts_them() -> None:
    values = documents(CHART / "values.yaml")[0]
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema_rs.validate(schema, values)
    for wrong in ({"worker": {"module": ["app"]}}, {"workers": {}}, {"existingSecrets": {"worker": "a b"}}):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, values | wrong)
    used = {match for path in TEMPLATES for match in re.findall(r"\.Values\.([\w.]+)", path.read_text())}
    for name in used:
        found: Any = values
        for part in name.split("."):
            assert part in found, f"{name} is used and has no value"
            found = found[part]
    known = {f"{name}.{each}" for name, group in values.items() for each in group}
    assert known - used == set(), "values that nothing uses"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_close_what_they_open_and_are_yaml_with_any_word_in_place_of_a_value(path: Path) -> None:
    text = path.read_text()
    words = re.findall(r"\{\{-?\s*(\w+)", text)
    opened = sum(word in ("if", "range", "define", "with") for word in words)
    assert opened == words.count("end")
    filled = re.sub(r"\{\{.*?\}\}", "word", re.sub(r"^\s*\{\{-.*\}\}\n", "", text, flags=re.MULTILINE))
    assert "{{" not in filled
    assert path.suffix == ".tpl" or all(document["kind"] for document in yaml.safe_load_all(filled))
    options = re.findall(r"^\s+- (--[a-z-]+)$", text, re.MULTILINE)
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert all(f"`{option}" in reference for option in options)


@contextmanager
def serving(words: list[str], database_url: str) -> Iterator[str]:
    """The service by these words, on a free port of this machine."""
    assert main(["token", "create", "x", "--database-url", database_url]) == 0
    command = [sys.executable, "-m", "tasklib", *map(str, words), "--database-url", database_url, "--json"]
    command[command.index("--port") + 1] = "0"
    with python.popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout is not None
        url = json.loads("".join(service.stdout.readline() for _ in range(3)))["url"]
        yield url.replace("0.0.0.0", "127.0.0.1")
        service.terminate()


def test_the_image_has_no_command_that_is_root() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]
    assert all(re.match(r"[A-Z]+ |#|\s|$", line) for line in lines)
