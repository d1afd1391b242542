"""Fails when SQL does not parse, is not described, or differs between the databases in name or parameters."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pglast

from tools.problems import ROOT, Problem, report
from tools.sql_files import BUILT_IN, Statement, fill, read_statements


def find_problems(storage: Path) -> list[Problem]:
    """Everything wrong in the SQL files under the folder of the storage package."""
    postgres, sqlite = (read_statements(storage / dialect / "sql") for dialect in ("postgres", "sqlite"))
    checks = (
        parse_migrations(storage / "postgres" / "migrations"),
        parse_statements(postgres),
        prepare_statements(sqlite, storage / "sqlite"),
        missing_purposes([*postgres, *sqlite]),
        differences(postgres, sqlite, "SQLite"),
        differences(sqlite, postgres, "PostgreSQL"),
    )
    return list(chain(*checks))


def parse_migrations(folder: Path) -> Iterator[Problem]:
    for path in sorted(folder.glob("*.sql")):
        yield from parse(path, 1, fill(path.read_text(), BUILT_IN))


def parse_statements(statements: list[Statement]) -> Iterator[Problem]:
    for statement in statements:
        yield from parse(statement.path, statement.line, statement.numbered())


def parse(path: Path, line: int, text: str) -> Iterator[Problem]:
    """What PostgreSQL's own parser says."""
    try:
        pglast.parse_sql(text)
    except pglast.parser.ParseError as error:
        message, *rest = error.args
        # The position is a number of bytes or characters, depending on where the parser failed.
        offset = text.count("\n", 0, rest[0]) if rest and isinstance(rest[0], int) else 0
        yield Problem(path, line, f"PostgreSQL: {message}, about {offset} lines further")


def prepare_statements(statements: list[Statement], dialect: Path) -> Iterator[Problem]:
    """What SQLite says to each statement on a database with all migrations, so columns are checked too."""
    connection = sqlite3.connect(":memory:")
    # After the migrations what every connection sets up for itself, such as its temporary tables.
    for path in [*sorted(dialect.glob("migrations/*.sql")), *dialect.glob("connection.sql")]:
        try:
            connection.executescript(path.read_text())
        except sqlite3.Error as error:
            yield Problem(path, 1, f"SQLite: {error}")
    for statement in statements:
        try:
            for step in statement.steps():
                connection.execute(f"EXPLAIN {step}", dict.fromkeys(statement.parameters))
        except (sqlite3.Error, sqlite3.Warning) as error:
            yield Problem(statement.path, statement.line, f"SQLite: {error}, in {statement.name}")
    connection.close()


def missing_purposes(statements: list[Statement]) -> Iterator[Problem]:
    for statement in statements:
        if not statement.purpose:
            yield Problem(statement.path, statement.line, f"{statement.name} has no line of purpose under its name")


def differences(ours: list[Statement], theirs: list[Statement], other: str) -> Iterator[Problem]:
    """Each of ours exists in the other's file of the same name, with the same parameters."""
    twins = {(statement.path.name, statement.name): statement for statement in theirs}
    for statement in ours:
        twin = twins.get((statement.path.name, statement.name))
        if twin is None and not statement.only_here:
            yield Problem(statement.path, statement.line, f"{statement.name} is missing for {other}")
        elif twin and (extra := statement.parameters - twin.parameters):
            names = ", ".join(sorted(extra))
            yield Problem(statement.path, statement.line, f"{statement.name} takes {names}, for {other} it does not")


if __name__ == "__main__":
    report(
        find_problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src/tasklib/storage"),
        "same files, statement names and parameters for both databases, or a line `-- Only here: reason`.",
    )
