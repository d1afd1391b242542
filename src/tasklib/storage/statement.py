"""Statements and operations: the vocabulary in which storage logic is written once for every driver.

An operation is a generator.  It yields statements, receives the rows of each, and returns its result:

    def get_task(task_id):
        rows = yield Statement("get_task", {"id": str(task_id)})
        return task_from_row(rows[0]) if rows else None

A driver runs it on a connection, blocking or awaiting, ours or the caller's.  Yielding BEGIN first asks for one
transaction around all that follows; without it each statement commits by itself.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from tasklib.errors import StorageError

T = TypeVar("T")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement of the `.sql` files, with its parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


Operation = Generator[Statement, Sequence[Row], T]

BEGIN: Final = Statement("begin")
"""Yielded first by an operation that must happen as a whole."""

COMMIT: Final = Statement("commit")
"""Yielded between the steps of a long operation: what was done so far stays, whatever happens next."""

MEMORY: Final = Statement("memory")
"""Answered with one row: what `recall` returns."""

DONE_BEFORE: Final = "done before"
"""Set in the memory by an operation that found its work done by an earlier try: nothing more is recorded about it."""


def recall() -> Operation[dict[str, Any]]:
    """A dictionary that belongs to one call of an operation, however often it is tried.

    The reply to a COMMIT can be lost.  The operation is then tried again, and finds by what it noted here, such as the
    id of the task it was making, whether its own work is done already.
    """
    (memory,) = yield MEMORY
    return cast("dict[str, Any]", memory)


ROLLBACK: Final = Statement("rollback")
"""Yielded after a failure that the operation handles: what was done since the last BEGIN or COMMIT is undone."""


class UndecodedText(str):
    """Text that is not UTF-8, with a mark in place of its odd bytes; only SQLite can hold such."""

    __slots__ = ()


class DuplicateKey(StorageError):
    """A statement that would have stored a key twice, and did nothing; an operation may expect it."""


@dataclass(frozen=True, slots=True)
class Sql:
    """The text of one statement of one dialect."""

    name: str
    place: tuple[str, int]
    """The file and the line of its name."""
    comment: str
    """What it is for, then further comments, line by line."""
    text: str
    parameters: frozenset[str]
    writes: bool
    custom_plan: bool


PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_SECTION = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_TOKEN = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"--[^\n]*")


@cache
def load_sql(dialect: str) -> Mapping[str, Sql]:
    """Every statement of a dialect's `sql/` folder by name; `{schema}` and `{channel}` are left for the driver."""
    return read_sql(Path(__file__).parent / dialect / "sql")


def read_sql(folder: Path) -> Mapping[str, Sql]:
    """Every statement of a folder's files.

    A statement is a line `-- name: verb_noun`, a line `-- what it does`, and its text, with parameters `:name`.  What
    is under `-- fragment: noun` replaces `{noun}` in every statement of the folder.
    """
    fragments: dict[str, str] = {}
    found: dict[str, tuple[tuple[str, int], str]] = {}
    for file in sorted(folder.glob("*.sql")):
        text = file.read_text("utf-8")
        heads = list(_SECTION.finditer(text))
        for head, end in zip(heads, [*(each.start() for each in heads[1:]), len(text)], strict=False):
            kind, name = head.groups()
            if name in (found if kind == "name" else fragments):
                raise ValueError(f"{folder.parent.name}/sql/{file.name}: {kind} {name} is defined twice")
            body = text[head.end() : end].strip()
            if kind == "name":
                found[name] = (file.name, text.count("\n", 0, head.start()) + 1), body
            else:
                fragments[name] = body
    return {name: _sql(name, place, body, fragments) for name, (place, body) in found.items()}


def _sql(name: str, place: tuple[str, int], body: str, fragments: Mapping[str, str]) -> Sql:
    text = body
    while any(token in fragments for token in _TOKEN.findall(text)):
        text = _TOKEN.sub(lambda m: fragments.get(m[1], m[0]), text)
    code = _COMMENT.sub("", text).strip()
    return Sql(
        name=name,
        place=place,
        comment="\n".join(line[3:] for line in takewhile(lambda line: line.startswith("-- "), body.splitlines())),
        text=code,
        parameters=frozenset(PARAMETER.findall(code)),
        writes=re.search(r"\b(INSERT|DELETE|UPDATE)\b(?! SKIP)", re.sub(r"FOR (NO KEY )?UPDATE", "", code)) is not None,
        custom_plan="\n-- plan: custom" in body,
    )


@cache
def pyformat(text: str) -> str:
    """The text with its parameters as `%(name)s`."""
    return PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
