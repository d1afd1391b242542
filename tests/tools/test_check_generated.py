"""A schema snapshot that is not what the migrations create is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_generated
from tools.schema_snapshot import dump_postgres, find_problems, snapshots, tidy

MIGRATIONS = {
    "postgres": [
        "CREATE TABLE {schema}.tasks (id uuid);",
        "ALTER TABLE {schema}.tasks ADD name text DEFAULT '{}';",
    ],
    "sqlite": ["CREATE TABLE tasks (id TEXT);", "ALTER TABLE tasks ADD name TEXT;"],
}


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    for dialect, migrations in MIGRATIONS.items():
        (tmp_path / dialect / "migrations").mkdir(parents=True)
        for number, text in enumerate(migrations, 1):
            (tmp_path / dialect / "migrations" / f"{number:04}_step.sql").write_text(text)
    return tmp_path


def test_fresh_snapshots_pass_and_stale_ones_fail(storage: Path) -> None:
    written = list(snapshots(storage, storage))
    for path, text in written:
        path.write_text(text)
    assert find_problems(storage, storage) == []
    assert all("name" in text for _, text in written)

    (storage / "sqlite/migrations/0003_more.sql").write_text("CREATE INDEX by_name ON tasks (name);")
    (storage / "postgres.sql").write_text("CREATE TABLE {schema}.tasks (id integer);")
    assert {problem.path.stem for problem in find_problems(storage, storage)} == {"postgres", "sqlite"}


def test_no_migrations_pass(tmp_path: Path) -> None:
    assert find_problems(tmp_path, tmp_path) == []


def test_snapshot_applies_like_a_migration() -> None:
    snapshot = dump_postgres(MIGRATIONS["postgres"])
    assert dump_postgres([snapshot]) == snapshot


def test_nothing_random_or_versioned_stays() -> None:
    noise = "--\n-- Dumped by pg_dump version 18.6\n--\n\\restrict x7\nSET lock_timeout = 0;\n"
    assert tidy(noise + "CREATE TABLE t ();\n\n\n\n") == "CREATE TABLE t ();\n"


def test_failing_generator_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_generated, "GENERATORS", ("tools.no_such_generator",))
    assert check_generated.main([]) == 1
