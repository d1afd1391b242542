"""Numbered migrations: which there are, which are missing, and whether this code may work on a newer schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from tasklib.errors import SchemaMismatch, SchemaTooNew

LEDGER: Final = "tasklib_migrations"
"""The table that records which migrations were applied."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str
    min_compatible: int
    """The oldest code, named by its newest migration, that works on the schema after this one."""

    @property
    def checksum(self) -> str:
        """What the file does, in short: other comments or line breaks are the same migration."""
        code = " ".join(re.sub(r"--[^\n]*", "", self.text).split())
        return hashlib.sha256(code.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """What a database has recorded of a migration that made its tables."""

    min_compatible: int
    checksum: str | None
    """None if it was recorded before there were checksums."""


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Every migration of a dialect, in order."""
    found = []
    for file in sorted((Path(__file__).parent / dialect / "migrations").glob("*.sql")):
        text = file.read_text("utf-8")
        declared = re.search(r"^-- min_compatible: (\d+)$", text, re.MULTILINE)
        if declared is None:
            raise ValueError(f"{file.name} does not say -- min_compatible: N")
        found.append(Migration(int(file.name[:4]), file.stem, text, int(declared[1])))
    return tuple(found)


def script(pending: Sequence[Migration], ledger: str, *, begin: str | None, fill: Callable[[str], str]) -> str:
    """The migrations as one text for a person or `psql`, each in a transaction that `begin` opens; empty for none.

    Without `begin` whoever runs it opens and commits.  `fill` puts the schema in its place.
    """
    written: list[str] = []
    for migration in pending:
        parts = [
            f"-- {migration.name}",
            begin,
            ledger.strip() if migration.version == 1 else None,
            migration.text.strip(),
            "INSERT INTO {schema}.tasklib_migrations (version, name, min_compatible, checksum)\nVALUES ("
            f"{migration.version}, '{migration.name}', {migration.min_compatible}, '{migration.checksum}');",
            None if begin is None else "COMMIT;",
        ]
        written.append(fill("\n\n".join(part for part in parts if part) + "\n"))
    return "\n".join(written)


def made_by_migrations(dialect: str, kind: str) -> list[str]:
    """The names of the tables, functions, sequences or domains that the migrations make, in order."""
    declared = re.compile(rf"^CREATE (?:UNLOGGED )?{kind} (?:\{{schema\}}\.)?(\w+)", re.MULTILINE)
    return [name for migration in migrations(dialect) for name in declared.findall(migration.text)]


@cache
def tables(dialect: str) -> tuple[str, ...]:
    """Every table that the migrations make, and the one that records them."""
    return (LEDGER, *made_by_migrations(dialect, "TABLE"))


@dataclass(frozen=True, slots=True)
class Part:
    """An index or a trigger of the task table, and the migration that makes it."""

    kind: Literal["index", "trigger"]
    name: str
    migration: str


@cache
def parts(dialect: str) -> tuple[Part, ...]:
    """Every index and trigger that the migrations give the task table."""
    declared = re.compile(r"^CREATE (?:UNIQUE )?(INDEX|TRIGGER) (tasks_\w+)", re.MULTILINE)
    return tuple(
        Part("index" if kind == "INDEX" else "trigger", name, migration.name)
        for migration in migrations(dialect)
        for kind, name in declared.findall(migration.text)
    )


def missing(dialect: str, applied: Mapping[int, Applied], where: str, start_over: str) -> Sequence[Migration]:
    """The migrations to apply, given those that the schema has; one too new, or made by other files, is an error.

    `where` names the place of the tables, `start_over` says how to create them again.
    """
    known = migrations(dialect)
    newest = known[-1].version
    needs = max((each.min_compatible for version, each in applied.items() if version > newest), default=0)
    if needs > newest:
        raise SchemaTooNew(
            f"the database has schema {max(applied)}, made by a newer tasklib; this one supports schema {newest} and "
            f"must not write to it; upgrade tasklib (nothing was changed)"
        )
    others = [
        each.name for each in known if each.version in applied and applied[each.version].checksum != each.checksum
    ]
    if others:
        raise SchemaMismatch(
            f"the tables in {where} were made by another tasklib, whose migrations of the same number differ "
            f"({', '.join(others)}); nothing was changed; use the tasklib that made them, or {start_over}"
        )
    return [migration for migration in known if migration.version not in applied]
