"""The database fixtures keep what they promise."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import aeventually, eventually


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_sees_an_empty_database(database_url: str, turn: int) -> None:
    if database_url.startswith("postgresql"):
        connection = psycopg.connect(libpq_url(database_url))
    else:
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE only_here (x int)")
    connection.commit()
    connection.close()


@pytest.mark.backends("postgres")
def test_marker_narrows_the_databases(database_url: str) -> None:
    assert database_url.startswith("postgresql://")


def test_schema_of_the_url_is_the_search_path(postgres_url: str) -> None:
    with psycopg.connect(libpq_url(postgres_url)) as connection:
        schema = connection.execute("SELECT current_schema").fetchone()
    assert postgres_url.endswith(f"?schema={schema[0]}")


def test_newest_is_the_newest(newest_postgres_url: str) -> None:
    from tests.fixtures.servers import covered_versions

    with psycopg.connect(libpq_url(newest_postgres_url)) as connection:
        assert connection.info.server_version // 10000 == max(covered_versions())


def test_eventually_returns_the_first_true_answer() -> None:
    answers = iter([0, None, "now"])
    assert eventually(lambda: next(answers)) == "now"


def test_eventually_fails_with_the_last_assertion() -> None:
    def check() -> None:
        raise AssertionError("three are missing")

    with pytest.raises(AssertionError, match="three are missing"):
        eventually(check, timeout=0.01)


async def test_aeventually_takes_coroutines() -> None:
    answers = iter([False, True])

    async def check() -> bool:
        return next(answers)

    assert await aeventually(check)
