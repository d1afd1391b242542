"""`docs/reference/json.md` names the keys of every answer, and each command prints exactly those."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from tasklib import TaskQueue
from tasklib.cli.main import app
from tests.integration.cli.conftest import CommandLine

PAGE = (Path(__file__).parents[3] / "docs/reference/json.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", keys.partition(";")[0]) for name, keys in cells[1:]}


COMMANDS = {command: keys for cell, keys in rows("By command").items() for command in re.findall(r"`([a-z].*?)`", cell)}


def test_every_command_is_on_the_page() -> None:
    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert {command.partition(" ")[0] for command in COMMANDS} == known


@pytest.fixture
def words(tasklib: CommandLine, tmp_path: Path) -> dict[str, list[str]]:
    """How each command that ends by itself is called, on a queue in which there is something to answer."""
    (tmp_path / "tasks.jsonl").write_text('{"name": "job"}\n')
    with TaskQueue(tasklib.url) as queue:
        queue.register_handler("fails", lambda payload: 1 / 0)
        queue.enqueue("fails", max_attempts=1)
        queue.process_batch()
        (group,) = queue.errors()
        waiting, stopped = str(queue.enqueue("job")), str(queue.enqueue("job"))
        queue.cancel(stopped)
    given = {
        "submit --file FILE": f"submit --file {tmp_path / 'tasks.jsonl'}",
        "show ID": f"show {waiting}",
        "explain ID": f"explain {waiting}",
        "steps ID": f"steps {waiting}",
        "tree ID": f"tree {waiting}",
        "emit NAME": "emit told",
        "retry ID": f"retry {stopped}",
        "cancel ID": f"cancel {stopped}",
        "delete ID": f"delete {stopped}",
        "retry --all-matching": "retry --all-matching --dry-run",
        "cancel --all-matching": "cancel --all-matching --dry-run",
        "delete --all-matching": "delete --all-matching --dry-run",
        "priority N": f"priority 9 {waiting}",
        "cleanup": "cleanup --older-than 1d",
        "redrive GROUP": f"redrive {group.id}",
        "schedules add NAME": "schedules add NAME --task job --every 1d",
        "copy FROM TO": f"copy {tasklib.url} sqlite:///{tmp_path / 'copy.db'}",
        "bench": "bench --tasks 100",
    }
    until_stopped = {"demo", "worker", "serve", "mcp"}
    asks_for_more = {"submit NAME --wait", "grants DUTY ROLE", "answer ID KEY JSON", "replay MODULE"}
    once = [command for command in COMMANDS if command not in until_stopped | asks_for_more]
    return {command: given.get(command, command).split() for command in once}


@pytest.mark.backends("sqlite-file")
def test_every_command_prints_the_keys_on_the_page(tasklib: CommandLine, words: dict[str, list[str]]) -> None:
    objects = rows("Objects")
    whole = dict.fromkeys(("schedules add NAME", "schedules show NAME"), objects["schedule"]) | {
        "show ID": objects["task"]
    }
    for command, called in words.items():
        answer = tasklib.run(*called, "--json").json
        if command == "bench":
            assert {key for figures in answer.values() for key in figures} == set(COMMANDS[command])
        else:
            assert list(answer) == whole.get(command, COMMANDS[command]), command
