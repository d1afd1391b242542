"""Writes what the migrations add up to, for people who read: `docs/reference/schema/{postgres,sqlite}.sql`.

Usage: python -m tools.schema_snapshot [--check]

Made from real databases with every migration applied, so it is what users have, not what we meant.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tools.postgres import available, start
from tools.problems import ROOT, Problem, report

STORAGE = ROOT / "src/tasklib/storage"
SNAPSHOTS = ROOT / "docs/reference/schema"
HEADER = "-- The schema after every migration. Written by `make snapshot`; read it, never edit it.\n\n"
POSTGRES_VERSION = 18  # pg_dump spells things a little differently in each major version
SCHEMA = "tasklib_snapshot"  # a name found nowhere else, put back to {schema} in the result


def main(arguments: list[str]) -> None:
    if "--check" in arguments:
        report(find_problems(STORAGE, SNAPSHOTS), "run `make snapshot` and commit the result with the migration.")
    else:
        for path, text in snapshots(STORAGE, SNAPSHOTS):
            path.write_text(text)


def find_problems(storage: Path, folder: Path) -> list[Problem]:
    """Each snapshot that is missing or is not what the migrations create."""
    return [
        Problem(path, 1, "is not what the migrations create")
        for path, text in snapshots(storage, folder)
        if not path.exists() or path.read_text() != text
    ]


def snapshots(storage: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    for dialect, dump in (("postgres", dump_postgres), ("sqlite", dump_sqlite)):
        migrations = [path.read_text() for path in sorted((storage / dialect).glob("migrations/*.sql"))]
        if migrations:
            yield folder / f"{dialect}.sql", HEADER + dump(migrations)


def dump_postgres(migrations: list[str]) -> str:
    """What pg_dump says of a server with the migrations applied, without its settings and its version."""
    installation = next((found for found in available() if found.version == POSTGRES_VERSION), None)
    if installation is None:
        sys.exit(f"The snapshot needs PostgreSQL {POSTGRES_VERSION}, which `make setup` installs.")
    with start(installation) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
            for migration in migrations:
                connection.execute(migration.replace("{schema}", SCHEMA).encode())
        options = [
            "--schema-only",
            "--no-owner",
            "--no-privileges",
            "--no-comments",
            f"--schema={SCHEMA}",
            f"--dbname={server.url}",
        ]
        dump = subprocess.run(
            [installation.bindir / "pg_dump", *options], check=True, stdout=subprocess.PIPE, text=True
        )
    return tidy(dump.stdout).replace(SCHEMA, "{schema}")


def tidy(dump: str) -> str:
    """Only the definitions: no session settings, no comments naming each object, no random \\restrict key."""
    noise = re.compile(
        r"^(?:SET |SELECT pg_catalog\.set_config|CREATE SCHEMA |--|\\(?:un)?restrict\b).*\n", re.MULTILINE
    )
    return re.sub(r"\n{3,}", "\n\n", noise.sub("", dump)).strip() + "\n"


def dump_sqlite(migrations: list[str]) -> str:
    """The definitions SQLite keeps, tables first, each object after the table it belongs to."""
    connection = sqlite3.connect(":memory:")
    for migration in migrations:
        connection.executescript(migration)
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        " ORDER BY tbl_name, type = 'table' DESC, type, name"
    )
    definitions = [f"{sql};" for (sql,) in rows]
    connection.close()
    return "\n\n".join(definitions) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
