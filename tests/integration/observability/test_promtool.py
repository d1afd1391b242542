"""Prometheus' own checker on what we ship: rules, what they do with series, and the dashboard's queries."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from tasklib import TaskQueue
from tasklib.worker.supervisor import exposition
from tools import promtool
from tools.problems import ROOT

PROGRAM = promtool.find()
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no promtool; `python -m tools.promtool` gets it on Debian")


def check(*arguments: str, given: bytes = b"") -> None:
    done = subprocess.run([str(PROGRAM), *arguments], input=given, capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_every_rule_is_valid_and_fires_when_it_should() -> None:
    check("check", "rules", str(ALERTS))
    check("test", "rules", str(ALERTS.with_name("alerts_test.yaml")))
    tried = yaml.safe_load(ALERTS.with_name("alerts_test.yaml").read_text())["tests"]
    fired = {each["alertname"] for test in tried for each in test["alert_rule_test"] if each["exp_alerts"]}
    assert fired == {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}


def test_every_query_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/tasklib.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"query_{number}", "expr": query.replace("$__rate_interval", "5m").replace("$type", ".*")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    check("check", "rules", "--lint=none", str(file))


async def test_what_is_exposed_is_named_as_prometheus_advises(sqlite_url: str) -> None:
    async with TaskQueue(sqlite_url) as queue:
        await queue.aenqueue("old")
        transport = httpx.ASGITransport(queue.asgi(auth=None))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            service = (await client.get("/metrics")).content
    counted = [[["divide", "completed", 1, {"40": 1}, {"40": 1}, 0.5, 0.5]]]
    worker = exposition.expose(counted, [{"ready": True, "slots": 4, "restarts": 0}])

    check("check", "metrics", given=service)
    check("check", "metrics", given=worker)
