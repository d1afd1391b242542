"""examples/agent.py: killed in the middle and started again, it repeats no call, and a person decides what is risky."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasklib import Task, TaskQueue
from tasklib.service.service import QueueService
from tests.chaos.judging import Watch
from tests.chaos.judging import watch as watch
from tests.fixtures.waiting import eventually
from tools.problems import ROOT

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")
APPROVAL = "approval:c3"
YES = {"ok": True, "reason": ""}
NO = {"ok": False, "reason": "too dear"}


class Program:
    """The example as a person starts it, and what it has left behind."""

    def __init__(self, url: str, folder: Path) -> None:
        self.queue = TaskQueue(url)
        self.ledger = folder / "ledger.txt"
        kept = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "TASKLIB_DATABASE_URL")}
        self._environment = kept | {"DATABASE_URL": url, "AGENT_LEDGER": str(self.ledger)}
        self._environment |= {"TASKLIB_WORKER_TIMEOUT_SECONDS": "2", "TASKLIB_HEARTBEAT_INTERVAL_SECONDS": "0.5"}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, seconds: float = 0.05) -> None:
        """Start it; each call of the model and of a tool takes so many seconds."""
        command = [sys.executable, "examples/agent.py", "--worker", *arguments]
        environment = self._environment | {"AGENT_SECONDS": str(seconds)}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it at once, as a power failure does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(180)

    def task(self) -> Task | None:
        return next(iter(self.queue.list(name="agent")), None)

    def done(self) -> list[str]:
        """The keys of the steps that are recorded."""
        task = self.task()
        if task is None:
            return []
        found = QueueService(self.queue).workflows.steps(task.id)
        return [step.key for step in found if step.state == "done" and step.kind == "step"]


def test_an_agent_that_is_killed_resumes_without_repeating_a_call(
    database_url: str, tmp_path: Path, watch: Watch
) -> None:
    """A person says yes to the one on SQLite, and no to the one on PostgreSQL."""
    verdict = YES if database_url.startswith("sqlite") else NO
    program = Program(database_url, tmp_path)
    program.queue.migrate()
    watch(database_url, None)
    try:
        # Its tools are being called when it is killed, and take longer than a busy machine needs for that.
        program.start("A weekend in Oslo", seconds=5)
        eventually(lambda: program.done() == ["ask_model"])
        program.kill()
        assert program.ledger.read_text().splitlines() == ["model 0"]

        program.start()
        eventually(lambda: (task := program.task()) is not None and task.waits_for == f"answer {APPROVAL}")
        (task,) = program.queue.list(name="agent")
        program.kill()  # while nothing runs but a question
        program.queue.answer(task.id, APPROVAL, verdict)
        program.start()
        ended = program.queue.wait(task.id, timeout=180)

        assert ended.result is not None, ended.error
        calls = ["model 0", "model 1", "model 2", "search_flights Oslo", "weather Oslo"]
        assert sorted(program.ledger.read_text().splitlines()) == sorted(
            [*calls, "book_flight OS-17"] if verdict["ok"] else calls
        )
        assert ("seat 4A" in ended.result["value"]) is verdict["ok"]
    finally:
        if program.process is not None:
            program.kill()
        program.queue.close()
