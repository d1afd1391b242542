"""Help: every command has an example that is understood, and the first page comes without loading the engine."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest
from typer.main import get_command

from tasklib.cli.exit_codes import MEANINGS
from tasklib.cli.main import app, main

COMMANDS = list(get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = {
    "pydantic",
    "pydantic_core",
    "psycopg",
    "psycopg_pool",
    "rich",
    "asyncio",
    "sqlite3",
    "tasklib.queue",
    "tasklib.worker",
}


def help_of(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def test_the_commands_are_those_promised() -> None:
    now = "migrate worker submit list show explain retry cancel delete cleanup stats types pause resume rate-limit"
    now += " concurrency-limit key-limit"
    now += " schedules workers demo version"
    assert set(now.split()) <= set(COMMANDS)


def test_the_first_page_groups_the_commands_and_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    page = help_of(capsys=capsys)
    for group in (
        "Start here:",
        "Work:",
        "Tasks:",
        "Queue:",
        "Service:",
        "Set-up:",
        "Options of every command:",
        "Exit codes:",
    ):
        assert f"\n{group}\n" in page
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +[A-Z]", page, re.MULTILINE)
    assert not re.search(r"\w\.\.\.$", page, re.MULTILINE)  # no description breaks off
    for code in MEANINGS:
        assert re.search(rf"^  {int(code)}  ", page, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_the_shared_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = help_of(name, capsys=capsys)
    assert page.startswith(f"Usage: tasklib {name}")
    assert "--database-url, --dsn URL" in page
    assert "--json" in page
    examples = page.partition("\nExamples:\n")[2].splitlines()
    assert examples
    assert all(line.startswith(f"  tasklib {name}") for line in examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_understood(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    for example in (command.epilog or "").splitlines():
        _, _, *arguments = shlex.split(example)
        command.make_context(name, arguments)  # raises a usage error for an option or argument that is not there


@pytest.mark.parametrize("arguments", [["--help"], [], ["worker", "--help"], ["list", "--help"], ["demo", "--help"]])
def test_help_loads_no_engine(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom tasklib.cli.main import main\n"
        f"main({arguments!r})\n"
        f"import json; print(json.dumps(list({HEAVY!r} & set(sys.modules))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # To read the options before a command's name, Typer itself loads Pydantic.
    loaded = set(json.loads(done.stderr)) - (set() if arguments == ["--help"] else {"pydantic", "pydantic_core"})
    assert loaded == set()


@pytest.mark.parametrize(
    "start", [["-m", "tasklib"], ["-c", "from tasklib.cli.main import main; raise SystemExit(main())"]]
)
def test_it_can_be_started_in_any_way(start: list[str]) -> None:
    done = subprocess.run([sys.executable, *start, "version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("tasklib ")


def test_h_is_help_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], *([name] for name in COMMANDS)):
        page = help_of(*command, capsys=capsys)
        assert main([*command, "-h"]) == 0
        assert capsys.readouterr().out == page
        assert "-h, --help" in page


def test_the_help_of_grants_says_that_a_worker_removes_finished_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    """As it may: retention is run by workers."""
    page = " ".join(help_of("grants", capsys=capsys).split())
    assert "a worker runs them and removes finished ones by the rules of retention" in page
