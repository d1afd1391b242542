"""Submitting a file of tasks: read as it goes, stored some thousand lines at a time, all of them or none."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID

from tasklib.cli import parse
from tasklib.cli.command import Cli
from tasklib.cli.exits import CommandFailed, Exit
from tasklib.cli.parse import BadValue
from tasklib.errors import StorageError, TaskLibError
from tasklib.submission import CHUNK
from tasklib.task import NewTask

SHOWN: Final = 20
"""Wrong lines that are reported one by one."""

Row = tuple[str, Any, dict[str, Any]]
"""Name, payload and options of one task."""

Read = Callable[[], Row]
"""Gives a row, or raises what is wrong with it."""


@dataclass(slots=True)
class Outcome:
    """What became of a file."""

    submitted: int = 0
    created: int = 0
    last_line: int = 0
    """The last line that was stored, or with a dry run checked."""
    problems: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def submit_file(
    cli: Cli,
    file: str,
    *,
    name: str | None,
    options: Mapping[str, Any],
    kind: str | None,
    from_line: int,
    dry_run: bool,
) -> None:
    """Submit every line of the file from one on; stop before the first chunk that has a wrong line."""
    with _opened(file) as stream:
        rows = _rows(stream, _kind_of(file, kind), name)
        with cli.out.progress(f"Submitting {file}", _size(stream)) as progress:
            outcome = _submit(
                cli, ((n, r) for n, r in rows if n >= from_line), options, dry_run, lambda: progress(_position(stream))
            )

    def say() -> None:
        if outcome.problems and (dry_run or not outcome.submitted):
            return
        verb = "Would submit" if dry_run else "Submitted"
        known = outcome.submitted - outcome.created
        beside = f"; {known:,} of them existed already" if known and not dry_run else ""
        cli.out.line(f"{verb} {outcome.submitted:,} tasks{beside}.")

    data = {
        "submitted": outcome.submitted,
        "created": outcome.created,
        "dry_run": dry_run,
        "problems": outcome.problems,
        "next_line": max(outcome.last_line + 1, from_line) if outcome.problems and not dry_run else None,
    }
    cli.out.answer(data, say)
    if outcome.problems:
        _complain(cli, outcome, from_line, dry_run=dry_run)


def _submit(
    cli: Cli, rows: Iterable[tuple[int, Read]], options: Mapping[str, Any], dry_run: bool, tick: Callable[[], None]
) -> Outcome:
    outcome = Outcome()
    for chunk in _chunks(rows):
        new, problems = _check(cli, chunk, options)
        outcome.problems += problems
        if problems and not dry_run:
            break
        if not dry_run:
            try:
                ids = cli.manage.queue.submit_new(new)
            except StorageError:
                raise
            except TaskLibError as error:
                outcome.problems.append(
                    {"line": chunk[0][0], "error": f"lines {chunk[0][0]} to {chunk[-1][0]}: {error}"}
                )
                break
            outcome.created += sum(task_id.created for task_id in ids)
        outcome.submitted += len(new)
        outcome.last_line = chunk[-1][0]
        tick()
    return outcome


def _check(
    cli: Cli, chunk: Iterable[tuple[int, Read]], options: Mapping[str, Any]
) -> tuple[list[NewTask], list[dict[str, Any]]]:
    new: list[NewTask] = []
    problems: list[dict[str, Any]] = []
    for line, read in chunk:
        try:
            name, payload, own = read()
            new.append(cli.manage.queue.new_by_name(name, payload, **{**options, **own}))
        except (TaskLibError, CommandFailed) as error:
            problems.append({"line": line, "error": str(error)})
    return new, problems


def _complain(cli: Cli, outcome: Outcome, from_line: int, *, dry_run: bool) -> None:
    for problem in outcome.problems[:SHOWN]:
        cli.out.error(f"line {problem['line']}: {problem['error']}")
    more = len(outcome.problems) - SHOWN
    rest = f", {more:,} more not shown" if more > 0 else ""
    if dry_run:
        raise CommandFailed(f"{len(outcome.problems):,} lines are wrong{rest}; nothing was stored")
    upto = f"everything up to line {outcome.last_line} was stored" if outcome.last_line else "nothing was stored"
    again = max(outcome.last_line + 1, from_line)
    raise CommandFailed(f"stopped{rest}: {upto}; repair the file and go on with --from-line {again}")


def _rows(stream: IO[bytes], kind: str, name: str | None) -> Iterator[tuple[int, Read]]:
    lines = (line.decode("utf-8", "surrogateescape") for line in stream)
    if kind == "csv":
        if name is None:
            raise BadValue("a CSV file holds arguments only; give the task's name: tasklib submit NAME --file …")
        return _csv_rows(lines, name)
    return _json_rows(lines, name)


def _json_rows(lines: Iterable[str], name: str | None) -> Iterator[tuple[int, Read]]:
    for number, line in enumerate(lines, 1):
        text = line.removeprefix("\ufeff").strip()
        if text:
            yield number, lambda text=text: _json_row(text, name)  # type: ignore[misc]


def _json_row(text: str, name: str | None) -> Row:
    _refuse_other_encoding(text)
    value = parse.json_value(text, "it")
    if name is not None:
        return name, value, {}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise BadValue('it is not an object with a "name"; give the name before --file if lines are payloads alone')
    unknown = sorted(set(value) - {"name", "payload", *LINE_OPTIONS})
    if unknown:
        raise BadValue(f"unknown: {', '.join(unknown)}; there are name, payload, {', '.join(LINE_OPTIONS)}")
    options = {key: LINE_OPTIONS[key](value[key]) for key in LINE_OPTIONS if value.get(key) is not None}
    return value["name"], value.get("payload"), options


def _csv_rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, Read]]:
    csv.field_size_limit(1 << 24)
    reader = csv.reader(lines, strict=True)
    header: list[str] | None = None
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise CommandFailed(f"line {reader.line_num} is not CSV: {error}", Exit.USAGE) from error
        if cells is None:
            return
        if header is None:
            header = _header(cells)
        elif cells:
            yield start, lambda cells=cells, header=header: (name, _csv_row(header, cells), {})  # type: ignore[misc]
        start = reader.line_num + 1


def _header(cells: list[str]) -> list[str]:
    names = [cell.removeprefix("\ufeff").strip() for cell in cells]
    if "" in names or len(set(names)) < len(names):
        raise BadValue(
            f"the first line of a CSV file names the arguments, each once; got {', '.join(map(repr, names))}"
        )
    return names


def _csv_row(header: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        raise BadValue(f"{len(cells)} cells under {len(header)} headings")
    for cell in cells:
        _refuse_other_encoding(cell)
    return {name: parse.loose_value(cell) for name, cell in zip(header, cells, strict=True) if cell != ""}


def _refuse_other_encoding(text: str) -> None:
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise BadValue("it is not UTF-8")


def _chunks(rows: Iterable[tuple[int, Read]]) -> Iterator[list[tuple[int, Read]]]:
    chunk: list[tuple[int, Read]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _kind_of(file: str, given: str | None) -> str:
    kind = given or Path(file).suffix.lstrip(".").lower()
    kind = {"": "jsonl", "ndjson": "jsonl", "json": "jsonl"}.get(kind, kind)
    if kind not in ("jsonl", "csv"):
        raise BadValue(f"{given or file} is neither JSON Lines nor CSV; say which by --format jsonl or --format csv")
    return kind


@contextmanager
def _opened(file: str) -> Generator[IO[bytes], None, None]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115 closed below; only opening it may fail here
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", Exit.USAGE) from error
    with stream:
        yield stream


def _size(stream: IO[bytes]) -> int | None:
    if not stream.seekable():
        return None
    size = stream.seek(0, 2)
    stream.seek(0)
    return size


def _position(stream: IO[bytes]) -> int:
    return stream.tell() if stream.seekable() else 0


def _as_it_is(value: Any) -> Any:
    return value


def _time(value: Any) -> Any:
    return parse.moment(str(value))


def _uuid(value: Any) -> UUID:
    try:
        return UUID(str(value))
    except ValueError:
        raise BadValue(f"id {value!r} is not a UUID") from None


LINE_OPTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "priority": _as_it_is,
    "delay_seconds": _as_it_is,
    "run_at": _time,
    "max_attempts": _as_it_is,
    "timeout_seconds": _as_it_is,
    "unique_key": _as_it_is,
    "on_conflict": _as_it_is,
    "concurrency_key": _as_it_is,
    "tags": _as_it_is,
    "headers": _as_it_is,
    "expires_at": _time,
    "id": _uuid,
}
"""What a line can say beside name and payload, and how it is read."""
