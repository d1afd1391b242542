"""Whatever a task holds, a terminal that shows it obeys nothing of it."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tasklib import TaskQueue
from tasklib.cli.show.output import one_line, safe
from tasklib.storage.operations import workers
from tasklib.storage.operations.workers import Registration
from tests.fixtures.backends import libpq_url
from tests.fixtures.terminal import Terminal
from tests.integration.cli.conftest import CommandLine

EVIL = [
    "\x1b[31mred",
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1bP0;1|17/ab\x9c",
    "\x9b31m",
    "\x9d0;title\x9c",
    "\x90q\x9c",
    "\x1bc",
    "\x1b(0",
    "\x1b[6n",
    "\x1b[?1049h",
    "a\rb",
    "a\x08b",
    "a\x07b",
    "a\x0bb\x0cc",
    "a\x7fb",
    "a\x85b",
    "a\u202egnp.exe",
    "a\u2066b\u2069",
    "a\u2028b\u2029c",
    "[red]markup[/red] :boom:",
]
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Everything but the line break."""


@pytest.fixture
def evil_queue(queue: TaskQueue, database_url: str) -> TaskQueue:
    """Evil text wherever somebody can put it."""
    text = "".join(EVIL)

    def fail(payload: object) -> None:
        raise ValueError(text)

    queue.register_handler("fail", fail)
    for evil in EVIL:
        queue.enqueue(
            "fail", {evil: evil, "list": [evil]}, tags={evil: evil}, headers={evil: evil}, unique_key=f"k{evil}"
        )
    queue.process_batch()
    who = Registration(
        instance=uuid4(), worker_id=text, host=text, pid=1, timeout_seconds=30, concurrency=1, names=(text,)
    )
    queue.database.run(lambda: workers.register_worker(who))
    queue.pause("fail", by=text, reason=text)
    insert_raw(database_url, text)
    return queue


def insert_raw(url: str, name: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("INSERT INTO tasks (name) VALUES (?)", (name,))
        connection.close()
    else:
        with psycopg.connect(libpq_url(url)) as connection:
            connection.execute("INSERT INTO tasks (name) VALUES (%s)", (name,))


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_nothing_a_terminal_would_obey_is_printed(tasklib: CommandLine, evil_queue: TaskQueue) -> None:
    shown = [
        ["list"],
        ["list", "--limit", "3"],
        ["stats"],
        ["types"],
        ["workers"],
        ["top"],
        ["pause", "x", "--reason", EVIL[0]],
    ]
    shown += [["show", str(task.id)] for task in evil_queue.list()]
    shown += [
        ["submit", "job", f"a={EVIL[1]}", "--unique-key", EVIL[2]],
        ["delete", "--all-matching", "--yes"],
    ]
    for arguments in shown:
        for form in ([], ["--json"]):
            ran = tasklib.run(*arguments, *form)
            assert ran.code == 0, ran.err
            assert UNSAFE.findall(ran.out) == [], arguments
            assert (
                "\\x1b[31mred" in ran.out or "\\u001b[31mred" in ran.out or arguments[0] in ("submit", "show", "delete")
            )


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_json_keeps_what_was_there(tasklib: CommandLine, evil_queue: TaskQueue) -> None:
    stored = {evil for task in evil_queue.list(name="fail") for evil in task.kwargs}
    shown = {evil for task in tasklib.json("list", "--name", "fail")["tasks"] for evil in task["kwargs"]}
    assert shown == stored == {*EVIL, "list"}


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.backends("sqlite-file")
def test_errors_repeat_nothing_evil_either(tasklib: CommandLine, queue: TaskQueue, evil: str) -> None:
    queue.migrate()
    for arguments in (["show", evil], ["list", "--state", evil], ["list", evil], [evil], ["submit", f"x{evil}=1"]):
        ran = tasklib.run(*arguments)
        assert ran.code in (1, 2)
        assert UNSAFE.findall(ran.err) == []
        assert ran.err.count("\n") == 1


@pytest.mark.backends("sqlite-file")
def test_colours_are_ours_alone_on_a_terminal(evil_queue: TaskQueue, database_url: str) -> None:
    task = evil_queue.list(name="fail")[-1]
    for arguments in (["list"], ["show", str(task.id)]):
        command = [sys.executable, "-m", "tasklib", *arguments, "--database-url", database_url]
        terminal = Terminal(command, columns=200)
        assert terminal.wait() == 0
        colours = set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", terminal.text))
        assert colours, "a terminal gets colours"
        rest = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text).replace("\r\n", "\n")
        assert UNSAFE.findall(rest) == []

        plain = Terminal(command, columns=200, environment={"NO_COLOR": "1"})
        assert plain.wait() == 0
        assert re.findall(r"\x1b\[3[0-9]", plain.text) == []


@pytest.mark.backends("sqlite-file")
def test_the_live_view_obeys_nothing_either(evil_queue: TaskQueue, database_url: str) -> None:
    command = [sys.executable, "-m", "tasklib", "top", "--interval", "0.2", "--database-url", database_url]
    terminal = Terminal(command, columns=400)
    terminal.wait_for("\\x1b[31mred")
    terminal.send("\x03")
    assert terminal.wait() == 0
    shown = [evil for evil in ("\x1b[31mred", "\x1b]0;title", "\x1b[6n", "\x9b31m") if evil in terminal.text]
    assert shown == []


@pytest.mark.parametrize(
    "text,shown",
    [
        ("plain ü 漢 🎉", "plain ü 漢 🎉"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x9b \u202e \ud800", "\\x9b \\u202e \\ud800"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_safe_shows_an_escape_for_each(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_one_line_is_one_line() -> None:
    assert one_line(" a\n\n b\tc \x1b[0m") == "a b c \\x1b[0m"


@pytest.mark.backends("sqlite-file")
def test_text_the_terminal_cannot_show_is_escaped(queue: TaskQueue, database_url: str, tmp_path: Path) -> None:
    import subprocess

    queue.enqueue("job", {"name": "漢字 🎉"})
    done = subprocess.run(
        [sys.executable, "-m", "tasklib", "list", "--database-url", database_url],
        env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"},
        cwd=tmp_path,
        capture_output=True,
    )
    assert done.returncode == 0
    assert json.dumps("漢字").strip('"').encode() in done.stdout
