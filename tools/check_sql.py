"""Fails when SQL does not parse, is not described, or differs between the databases in name or parameters."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import pglast

from tasklib.storage.dialects.sqlite import split
from tasklib.storage.statement import PARAMETER, Sql, read_sql
from tools.problems import ROOT, Problem, report


def find_problems(storage: Path) -> list[Problem]:
    """Everything wrong in the SQL files under the folder of the storage package, read as the library reads them."""
    postgres, sqlite = storage / "postgres", storage / "sqlite"
    try:
        theirs, ours = read_sql(postgres / "sql"), read_sql(sqlite / "sql")
    except ValueError as error:
        return [Problem(storage, 1, str(error))]
    checks = (
        parse_migrations(postgres / "migrations"),
        parse_statements(postgres / "sql", theirs),
        prepare_statements(sqlite, ours),
        missing_purposes(postgres / "sql", theirs),
        missing_purposes(sqlite / "sql", ours),
        differences(postgres / "sql", theirs, ours, "SQLite"),
        differences(sqlite / "sql", ours, theirs, "PostgreSQL"),
    )
    return list(chain(*checks))


def parse_migrations(folder: Path) -> Iterator[Problem]:
    for path in sorted(folder.glob("*.sql")):
        yield from parse(path, 1, fill(path.read_text()))


def parse_statements(folder: Path, statements: Mapping[str, Sql]) -> Iterator[Problem]:
    for sql in statements.values():
        # Which number stands for which parameter makes no difference to the parser.
        yield from parse(folder / sql.place[0], sql.place[1], PARAMETER.sub("$1", fill(sql.text)))


def fill(text: str) -> str:
    """The text as the driver would send it."""
    return text.replace("{schema}", "public").replace("{channel}", "channel")


def parse(path: Path, line: int, text: str) -> Iterator[Problem]:
    """What PostgreSQL's own parser says."""
    try:
        pglast.parse_sql(text)
    except pglast.parser.ParseError as error:
        message, *rest = error.args
        # The position is a number of bytes or characters, depending on where the parser failed.
        offset = text.count("\n", 0, rest[0]) if rest and isinstance(rest[0], int) else 0
        yield Problem(path, line, f"PostgreSQL: {message}, about {offset} lines further")


def prepare_statements(dialect: Path, statements: Mapping[str, Sql]) -> Iterator[Problem]:
    """What SQLite says to each statement on a database with all migrations, so columns are checked too."""
    connection = sqlite3.connect(":memory:")
    # After the migrations what every connection sets up for itself, such as its temporary tables.
    for path in [*sorted(dialect.glob("migrations/*.sql")), *dialect.glob("connection.sql")]:
        try:
            connection.executescript(path.read_text())
        except sqlite3.Error as error:
            yield Problem(path, 1, f"SQLite: {error}")
    for sql in statements.values():
        try:
            for part in split(sql.text):
                connection.execute(f"EXPLAIN {part}", dict.fromkeys(sql.parameters))
        except (sqlite3.Error, sqlite3.Warning) as error:
            yield Problem(dialect / "sql" / sql.place[0], sql.place[1], f"SQLite: {error}, in {sql.name}")
    connection.close()


def missing_purposes(folder: Path, statements: Mapping[str, Sql]) -> Iterator[Problem]:
    for sql in statements.values():
        if not sql.comment:
            yield Problem(folder / sql.place[0], sql.place[1], f"{sql.name} has no line of purpose under its name")


def differences(folder: Path, ours: Mapping[str, Sql], theirs: Mapping[str, Sql], other: str) -> Iterator[Problem]:
    """Each of ours exists in the other's file of the same name, with the same parameters."""
    for sql in ours.values():
        twin = theirs.get(sql.name)
        path, line = folder / sql.place[0], sql.place[1]
        if twin is None or twin.place[0] != sql.place[0]:
            if "\nOnly here: " not in sql.comment:
                yield Problem(path, line, f"{sql.name} is missing for {other}")
        elif extra := sql.parameters - twin.parameters:
            names = ", ".join(sorted(extra))
            yield Problem(path, line, f"{sql.name} takes {names}, for {other} it does not")


if __name__ == "__main__":
    report(
        find_problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src/tasklib/storage"),
        "same files, statement names and parameters for both databases, or a line `-- Only here: reason`.",
    )
