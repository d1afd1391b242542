"""submit --file: streaming, some thousand lines at a time, all of them or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def written(folder: Path, name: str, *lines: str) -> str:
    file = folder / name
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


def test_lines_can_name_their_tasks_and_say_how_they_shall_run(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path
) -> None:
    file = written(
        tmp_path,
        "tasks.jsonl",
        '{"name": "a", "payload": {"n": 1}, "priority": 5, "tags": {"own": true}, "max_attempts": 9}',
        "",
        '{"name": "b", "run_at": "2030-01-01T00:00:00Z", "unique_key": "k", "timeout_seconds": 1.5}',
        '{"name": "c", "payload": [1], "id": "0199f1e2-7c3a-7000-8000-000000000000", "delay_seconds": 60}',
    )

    assert tasklib.ok("submit", "--file", file, "--priority", "1") == "Submitted 3 tasks.\n"

    a, b, c = queue.list()[::-1]
    assert (a.name, a.kwargs, a.priority, a.tags, a.max_attempts) == ("a", {"n": 1}, 5, {"own": True}, 9)
    assert (b.name, b.kwargs, b.priority, b.unique_key, b.timeout_seconds) == ("b", {}, 1, "k", 1.5)
    assert b.scheduled_at.year == 2030
    assert (c.kwargs, str(c.id)) == ([1], "0199f1e2-7c3a-7000-8000-000000000000")


def test_with_a_name_each_line_is_a_payload(tasklib: CommandLine, queue: TaskQueue, tmp_path: Path) -> None:
    file = written(tmp_path, "mails.jsonl", '{"name": "Ada"}', "[1, 2]")
    tasklib.ok("submit", "greet", "--file", file, "--tag", "batch=x")
    assert [(t.name, t.kwargs, t.tags) for t in queue.list()[::-1]] == [
        ("greet", {"name": "Ada"}, {"batch": "x"}),
        ("greet", [1, 2], {"batch": "x"}),
    ]


def test_a_csv_file_names_the_arguments_in_its_first_line(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path
) -> None:
    file = written(
        tmp_path, "people.csv", "\ufeffto,copies,note", 'ada,2,"two\nlines, quoted"', "grace,,", "01234,true,x"
    )
    tasklib.ok("submit", "send_email", "--file", file)
    assert [task.kwargs for task in queue.list()[::-1]] == [
        {"to": "ada", "copies": 2, "note": "two\nlines, quoted"},
        {"to": "grace"},
        {"to": "01234", "copies": True, "note": "x"},
    ]


def test_stdin_is_a_file_too(tasklib: CommandLine, queue: TaskQueue) -> None:
    assert tasklib.json("submit", "--file", "-", stdin='{"name": "a"}\n{"name": "b"}') == {
        "submitted": 2,
        "created": 2,
        "dry_run": False,
        "problems": [],
        "next_line": None,
    }
    tasklib.ok("submit", "c", "--file", "-", "--format", "csv", stdin="n\n1\n")
    assert {task.name for task in queue.list()} == {"a", "b", "c"}


def test_wrong_lines_are_named_and_nothing_beside_them_is_stored(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path
) -> None:
    file = written(
        tmp_path,
        "t.jsonl",
        '{"name": "a"}',
        "{",
        '{"payload": 1}',
        '{"name": "a", "colour": 1}',
        '{"name": "a", "priority": "x"}',
    )

    ran = tasklib.run("submit", "--file", file)

    assert ran.code == 1
    assert ran.out == ""
    assert [line.partition(": ")[2][:30] for line in ran.err.splitlines()] == [
        "line 2: it is not JSON: Expect",
        "line 3: it is not an object wi",
        "line 4: unknown: colour; there",
        "line 5: priority must be a who",
        "stopped: nothing was stored; r",
    ]
    assert queue.count() == 0


def test_what_came_before_the_wrong_lines_is_kept_and_one_can_go_on_from_there(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path
) -> None:
    lines = [json.dumps({"n": n}) for n in range(1, 4501)]
    wrong = [*lines[:4100], "oops", *lines[4101:]]

    ran = tasklib.run("submit", "count", "--file", written(tmp_path, "wrong.jsonl", *wrong), "--json")

    assert (ran.code, ran.json["submitted"], ran.json["next_line"]) == (1, 4000, 4001)
    assert [problem["line"] for problem in ran.json["problems"]] == [4101]
    assert queue.count() == 4000

    tasklib.ok("submit", "count", "--file", written(tmp_path, "right.jsonl", *lines), "--from-line", "4001")

    assert queue.count() == 4500
    assert {task.kwargs["n"] for task in queue.list(limit=5000)} == set(range(1, 4501))


def test_a_dry_run_checks_every_line_and_stores_none(tasklib: CommandLine, queue: TaskQueue, tmp_path: Path) -> None:
    lines = ["{}"] * 2500
    assert (
        tasklib.ok("submit", "job", "--file", written(tmp_path, "good.jsonl", *lines), "--dry-run")
        == "Would submit 2,500 tasks.\n"
    )
    bad = written(tmp_path, "bad.jsonl", "x", *lines, "y")
    ran = tasklib.run("submit", "job", "--file", bad, "--dry-run")
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == "error: 2 lines are wrong; nothing was stored"
    assert [line.split(":")[1] for line in ran.err.splitlines()[:2]] == [" line 1", " line 2502"]
    assert queue.count() == 0


def test_a_unique_key_that_is_taken_takes_its_whole_chunk_back_if_it_shall(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path
) -> None:
    queue.enqueue("job", unique_key="taken")
    file = written(tmp_path, "t.jsonl", '{"name": "job"}', '{"name": "job", "unique_key": "taken"}')

    assert tasklib.ok("submit", "--file", file) == "Submitted 2 tasks; 1 of them existed already.\n"
    ran = tasklib.run("submit", "--file", file, "--on-conflict", "raise")

    assert ran.code == 1
    assert ran.err.startswith("error: line 1: lines 1 to 2: task ")
    assert queue.count() == 2


@pytest.mark.parametrize(
    "arguments,content,said",
    [
        (["--file", "{}.jsonl", "a=1"], "", "the task's name comes first"),
        (["job", "--file", "{}.jsonl", "a=1"], "", "--file does not go with arguments, --payload or --wait"),
        (["--file", "{}.csv"], "a\n1\n", "a CSV file holds arguments only; give the task's name"),
        (["job", "--file", "{}.csv"], "a,a\n1,2\n", "the first line of a CSV file names the arguments, each once"),
        (["job", "--file", "{}.csv"], 'a\n"x', "line 2 is not CSV: unexpected end of data"),
        (["job", "--file", "{}.txt"], "", "is neither JSON Lines nor CSV"),
        (["job", "--file", "/nowhere/x.jsonl"], "", "cannot read /nowhere/x.jsonl: No such file or directory"),
    ],
)
@pytest.mark.backends("sqlite-file")
def test_a_file_that_cannot_be_used_is_exit_2(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path, arguments: list[str], content: str, said: str
) -> None:
    for suffix in ("jsonl", "csv", "txt"):
        (tmp_path / f"f.{suffix}").write_text(content)
    given = [argument.replace("{}", str(tmp_path / "f")) for argument in arguments]
    assert said in tasklib.fails(2, "submit", *given)
    assert queue.count() == 0


@pytest.mark.backends("sqlite-file")
def test_a_line_in_another_encoding_is_named(tasklib: CommandLine, tmp_path: Path) -> None:
    for suffix, content in {"jsonl": b'{"a": 1}\n{"a": "\xe9"}\n', "csv": b"a\nb\n\xe9\n"}.items():
        file = tmp_path / f"latin.{suffix}"
        file.write_bytes(content)
        ran = tasklib.run("submit", "job", "--file", str(file))
        line = 2 if suffix == "jsonl" else 3
        assert ran.err.startswith(f"error: line {line}: it is not UTF-8\n")


@pytest.mark.backends("sqlite-file")
def test_a_row_with_too_few_cells_is_named(tasklib: CommandLine, tmp_path: Path) -> None:
    ran = tasklib.run("submit", "job", "--file", written(tmp_path, "f.csv", "a,b", "1,2", "3"))
    assert ran.err.startswith("error: line 3: 1 cells under 2 headings\n")
