"""Tasks in a file, one per line: JSON Lines or CSV, read as a stream; errors name the number of the line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID

from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.values import BadValue

Row = tuple[str, Any, dict[str, Any]]
"""Name, payload and options of one task."""

Read = Callable[[], Row]
"""Reads a row, or raises an error that says what is wrong with it."""


def read_rows(stream: IO[bytes], kind: str, name: str | None) -> Iterator[tuple[int, Read]]:
    """The number of each line that holds a task, and how to read it; `name` is the task's if lines are payloads."""
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
    value = values.json_value(text, "it")
    if name is not None:
        return name, value, {}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise BadValue('it is not an object with a "name"; give the name before --file if lines are payloads alone')
    unknown = sorted(set(value) - {"name", "payload", *LINE_OPTIONS})
    if unknown:
        raise BadValue(f"unknown: {', '.join(unknown)}; there are name, payload, {', '.join(LINE_OPTIONS)}")
    options = {key: value[key] for key in LINE_OPTIONS if value.get(key) is not None}
    options |= {key: read(options[key]) for key, read in _READ.items() if key in options}
    return value["name"], value.get("payload", {}), options


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
    return {name: values.loose_value(cell) for name, cell in zip(header, cells, strict=True) if cell != ""}


def _refuse_other_encoding(text: str) -> None:
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise BadValue("it is not UTF-8")


def kind_of(file: str, given: str | None) -> str:
    """The format of the file, `jsonl` or `csv`: as given, or by its name."""
    kind = given or Path(file).suffix.lstrip(".").lower()
    kind = {"": "jsonl", "ndjson": "jsonl", "json": "jsonl"}.get(kind, kind)
    if kind not in ("jsonl", "csv"):
        raise BadValue(f"{given or file} is neither JSON Lines nor CSV; say which by --format jsonl or --format csv")
    return kind


def _uuid(value: Any) -> UUID:
    try:
        return UUID(str(value))
    except ValueError:
        raise BadValue(f"id {value!r} is not a UUID") from None


LINE_OPTIONS: Final = (
    *("priority", "delay_seconds", "run_at", "max_attempts", "timeout_seconds", "unique_key", "on_conflict"),
    *("concurrency_key", "tags", "headers", "expires_at", "id"),
)
"""What a line may have besides name and payload."""
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "run_at": lambda value: values.moment(str(value)),
    "expires_at": lambda value: values.moment(str(value)),
    "id": _uuid,
}
"""How to read those that are not taken as they are."""
