"""The documents are true: every example runs, every command and setting in them exists, nothing public is left out."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

import tasklib
from tasklib import Config, TaskQueue, errors
from tasklib.cli.main import app
from tasklib.core.config import environment_names
from tasklib.core.lifecycle import ACTIONS, TRANSITIONS
from tasklib.definition import TaskOptions
from tasklib.submission import SubmitOptions
from tasklib.worker import WorkerSettings
from tests.acceptance.documents import FILE, NOT_RUN, ROOT, RUNS_UNTIL_STOPPED, Block, blocks_of, documents, tables_of
from tests.acceptance.seeds import statements
from tests.acceptance.seeds.support import Shell
from tests.fixtures import python
from tests.fixtures.backends import libpq_url

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
SHELLS = ("bash", "shell", "sh")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(*languages: str) -> list[Block]:
    return [block for path in documents() for block in blocks_of(path, *languages)]


# Examples


FOLLOWED = (
    ROOT / "README.md",
    DOCS / "quickstart.md",
    DOCS / "integrations" / "django.md",
    DOCS / "migrating" / "django-tasks-db.md",
)
"""Documents that other tests follow as a reader would, file by file and command by command."""


@pytest.mark.parametrize(
    "path", [path for path in documents() if path not in FOLLOWED and blocks_of(path, "python")], ids=named
)
def test_examples_run(path: Path, tmp_path: Path, newest_postgres_url: str) -> None:
    """All Python blocks of a document, in order, as one program in an empty folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKLIB_", "DATABASE_URL"))}
    environment = kept | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TEST_POSTGRES_URL": libpq_url(newest_postgres_url)}

    command = [sys.executable, "-m", "tests.acceptance.run_document", str(path)]
    done = python.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)

    assert done.returncode == 0, done.stderr


def test_few_examples_are_not_run() -> None:
    """Each exception gives its reason, and there are few of them."""
    remarks = [block.remark for block in blocks("python") if block.remark and block.remark != RUNS_UNTIL_STOPPED]
    remarks = [remark for remark in remarks if not remark.startswith(FILE)]

    assert all(remark.startswith(NOT_RUN) for remark in remarks)
    assert len(remarks) <= 4


def test_the_example_of_the_readme_is_short() -> None:
    first = blocks_of(ROOT / "README.md", "python")[0]

    assert len([line for line in first.text.splitlines() if line.strip()]) <= 12


# SQL


@pytest.mark.parametrize("block", blocks("sql"), ids=lambda block: block.place)
def test_sql_runs(block: Block, request: pytest.FixtureRequest) -> None:
    """On the database its comment names; without one, on both."""
    if block.remark.startswith(NOT_RUN):
        assert len(block.remark) > len(NOT_RUN) + 10
        return
    for database, fixture in (("sqlite", "sqlite_url"), ("postgresql", "newest_postgres_url")):
        if block.remark in ("", database):
            with TaskQueue(request.getfixturevalue(fixture)) as queue:
                queue.enqueue("send_email", {"to": "ada@example.com"})
                shell = Shell(queue)
                for statement in statements_of(block.text):
                    shell.run(statement)
                shell.close()


def statements_of(text: str) -> list[str]:
    """The single statements of a text."""
    bare = re.sub(r"--[^\n]*", "", text)
    return [statement for statement in bare.split(";") if statement.strip()]


@pytest.mark.parametrize("printed", statements.ALL, ids=lambda printed: printed.postgres.split("\n")[0][:40])
def test_the_page_about_sql_prints_what_the_specification_prints(printed: statements.Printed) -> None:
    """With the form for SQLite beside it."""
    page = squeezed((DOCS / "guides" / "raw-sql.md").read_text())

    assert squeezed(printed.postgres) in page
    assert squeezed(printed.sqlite) in page


def squeezed(text: str) -> str:
    return " ".join(re.sub(r"--[^\n]*", "", text).split())


# Commands


def commands() -> dict[str, Any]:
    """Every command of the program, by name."""
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def shell_lines() -> Iterator[tuple[Block, str]]:
    """What is typed; of a script only the commands that are ours."""
    for block in blocks(*SHELLS):
        text = block.text.replace("\\\n", " ")
        for line in map(str.strip, text.splitlines()):
            if line and not line.startswith("#") and (not is_script(block) or line.startswith("tasklib ")):
                yield block, line


def is_script(block: Block) -> bool:
    return re.search(r"^(while|for|if) ", block.text, re.MULTILINE) is not None


@pytest.mark.parametrize("block", [each for each in blocks(*SHELLS) if is_script(each)], ids=lambda each: each.place)
def test_scripts_are_understood(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


@pytest.mark.parametrize("block, line", list(shell_lines()), ids=lambda value: getattr(value, "place", None))
def test_commands_exist(block: Block, line: str) -> None:
    """Programs, targets of make, commands of tasklib with their options, and files."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    program, *arguments = words
    match program:
        case "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in arguments if re.fullmatch(r"[a-z]+", word)} <= set(targets)
        case "tasklib":
            check_tasklib(arguments)
        case "python" if arguments[0].startswith("examples/"):
            assert (ROOT / arguments[0]).exists()
        case _:
            known = ("django-admin", "export", "git", "pip", "psql", "python", "sqlite3", "0")
            assert program in known, f"{block.place}: {program}"


def check_tasklib(arguments: list[str]) -> None:
    name = arguments[0]
    if name.startswith("--"):
        return
    assert name in commands(), name
    options = {option for each in commands()[name].params for option in each.opts} | {"--help"}
    given = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)}
    assert given <= options, given - options


# References


def text_of(*names: str) -> str:
    return "\n".join((REFERENCE / name).read_text() for name in names)


@pytest.mark.parametrize("name", sorted(set(tasklib.__all__) - {"__version__"}))
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"\b{name}\b", text_of("python.md", "errors.md"))


@pytest.mark.parametrize("name", sorted(name for name in dir(TaskQueue) if not name.startswith("_")))
def test_every_method_of_a_queue_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`{name}\b", text_of("python.md"))


@pytest.mark.parametrize(
    "heading, options",
    [("Task options", TaskOptions), ("Submit options", SubmitOptions), ("Worker settings", WorkerSettings)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_option_is_in_the_reference_with_its_default(heading: str, options: Any) -> None:
    """A default in code is the real one; one in words is taken from elsewhere: the task, the worker, the settings."""
    section = text_of("python.md").partition(f"### {heading}\n")[2].partition("\n#")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    values = options()

    assert set(shown) == {entry.name for entry in fields(options)}
    for name, default in shown.items():
        if default.startswith("`"):
            assert ast.literal_eval(default.strip("`")) == getattr(values, name), name


def test_the_settings_are_those_of_config() -> None:
    """Each with its environment variable and its default, in their order."""
    (table,) = tables_of(REFERENCE / "settings.md")
    variables = environment_names()
    expected = [
        [f"`{entry.name}`", f"`{variables[entry.name]}`", f"`{entry.metadata['default']!r}`"]
        for entry in fields(Config)
    ]
    expected[0][1] += ", `DATABASE_URL`"
    expected[0][2] = "required"

    assert [row[:3] for row in table] == expected
    assert all(row[3] for row in table)


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    """Each class under the one it derives from, with a meaning beside it."""
    (tree,) = blocks_of(REFERENCE / "errors.md", "text")
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in tree.text.splitlines():
        found = re.match(r"([│├└─ ]*)(\w+)(?:\s{2,}(.+))?$", line)
        assert found, line
        depth = len(found[1]) // 4
        del above[depth:]
        drawn[found[2]] = above[-1] if above else ""
        above.append(found[2])

    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    real = {
        each.__name__: next((base.__name__ for base in each.__bases__ if issubclass(base, errors.TaskLibError)), "")
        for each in classes
        if issubclass(each, errors.TaskLibError)
    }
    assert drawn == real


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_is_in_the_reference(name: str) -> None:
    """With each of its options that are not hidden."""
    text = text_of("cli.md")
    section = re.search(rf"^### `tasklib {name}`.*?(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)

    assert section, f"no section on {name}"
    common = {"--help", "--json", "--database-url", "--dsn"}
    shown = [each for each in commands()[name].params if not getattr(each, "hidden", False)]
    options = {option for each in shown for option in each.opts if option.startswith("--")}
    assert {option for option in options - common if f"`{option}" not in section[0]} == set()


def test_every_logger_is_in_the_reference() -> None:
    found = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'getLogger\("(tasklib\.\w+)"', path.read_text())
    }

    assert found == set(re.findall(r"`(tasklib\.\w+)`", text_of("logs.md")))


def test_every_column_is_in_the_reference(sqlite_url: str, newest_postgres_url: str) -> None:
    columns = set[str]()
    for url in (sqlite_url, newest_postgres_url):
        with TaskQueue(url) as queue:
            shell = Shell(queue)
            columns |= set(shell.columns())
            shell.close()

    (table,) = tables_of(REFERENCE / "table.md")
    assert {row[0].strip("`") for row in table} == columns


# Lifecycle

LIFECYCLE = DOCS / "lifecycle.md"


def test_the_table_of_transitions_is_that_of_the_code() -> None:
    rows = tables_of(LIFECYCLE)[0]

    drawn = {(row[0].strip("`"), row[1].strip("`")): row[2].strip("`") for row in rows}
    real = {(phase.value, event.value): to.value if to else "gone" for (phase, event), to in TRANSITIONS.items()}
    assert drawn == real
    assert len(rows) == len(real)


def test_the_table_of_actions_is_that_of_the_code() -> None:
    rows = {row[0].strip("`"): (row[1], row[2]) for row in tables_of(LIFECYCLE)[1]}

    assert rows == {each: (", ".join(rule.possible), ", ".join(rule.by_default)) for each, rule in ACTIONS.items()}


def test_the_diagram_draws_every_transition() -> None:
    (diagram,) = blocks_of(LIFECYCLE, "mermaid")
    drawn = {
        (start, event, "gone" if end == "[*]" else end)
        for start, end, names in re.findall(r"^\s+(\w+) --> (\w+|\[\*\]): (.+)$", diagram.text, re.MULTILINE)
        for event in names.split(", ")
    }

    assert drawn == {(p.value, e.value, to.value if to else "gone") for (p, e), to in TRANSITIONS.items()}


# The shape of it all


def test_every_page_can_be_reached_from_the_index() -> None:
    """By following links."""
    seen, waiting = set[Path](), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        waiting += [page.parent / link for link in re.findall(r"\]\(([^)#:]+\.md)", page.read_text())]

    assert {path.resolve() for path in DOCS.rglob("*.md")} <= seen


def test_the_tree_in_the_architecture_is_that_of_the_source() -> None:
    """Every module at the top and every folder has its line, and no line is about something that is gone."""
    package = ROOT / "src" / "tasklib"
    tree, *_ = blocks_of(ROOT / "ARCHITECTURE.md", "text")
    drawn = {name.rstrip("/") for name in re.findall(r"^ *([\w./]+)(?:  |$)", tree.text, re.MULTILINE)}

    top = {path.name for path in package.glob("*.py")} - {"__main__.py"}
    folders = {
        str(path.relative_to(package)) for path in package.rglob("*") if path.is_dir() and any(path.glob("*.py"))
    }
    missing = {
        name for name in top | folders if name.rpartition("/")[2] not in {each.rpartition("/")[2] for each in drawn}
    }
    assert missing == set()
    known = {path.name for path in package.rglob("*")} | {"src", "tasklib"}
    assert {name for name in drawn if name.rpartition("/")[2] not in known} == set()
