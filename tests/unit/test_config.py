"""Settings: arguments first, then the environment, then defaults; each checked."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tasklib.core.config import Config, environment_names, redact_url
from tasklib.errors import ConfigurationError

URL = "sqlite:///tasks.db"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.startswith("TASKLIB_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)


def test_the_defaults_are_those_of_seed_000():
    config = Config(database_url=URL)

    assert (
        config.max_retries,
        config.base_retry_delay_seconds,
        config.retry_backoff_multiplier,
        config.lock_timeout_seconds,
        config.default_task_timeout_seconds,
        config.worker_id,
    ) == (3, 5.0, 2.0, 600, None, None)


def test_without_any_url_the_error_says_where_one_is_looked_for():
    with pytest.raises(ConfigurationError, match=r"database_url= or set DATABASE_URL"):
        Config()


def test_the_url_is_read_from_database_url(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_URL", URL)

    assert Config().database_url == URL


def test_tasklib_database_url_wins_over_database_url(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_URL", "sqlite:///other.db")
    monkeypatch.setenv("TASKLIB_DATABASE_URL", URL)

    assert Config().database_url == URL


def test_a_url_of_none_as_os_getenv_gives_it_falls_back_to_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_URL", URL)
    missing: Any = None

    assert Config(database_url=missing).database_url == URL


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("max_retries", "7", 7),
        ("retry_jitter", "0.5", 0.5),
        ("default_task_timeout_seconds", "12", 12.0),
        ("auto_migrate", "No", False),
        ("auto_migrate", "on", True),
        ("worker_id", "w-1", "w-1"),
        ("pool_size", "", 10),
    ],
)
def test_a_setting_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any):
    monkeypatch.setenv(environment_names()[name], text)

    assert getattr(Config(database_url=URL), name) == value


def test_an_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TASKLIB_MAX_RETRIES", "7")

    assert Config(database_url=URL, max_retries=1).max_retries == 1


def test_an_argument_equal_to_the_default_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TASKLIB_MAX_RETRIES", "7")

    assert Config(database_url=URL, max_retries=3).max_retries == 3


def test_a_copy_does_not_read_the_environment_again(monkeypatch: pytest.MonkeyPatch):
    config = Config(database_url=URL)
    monkeypatch.setenv("TASKLIB_MAX_RETRIES", "7")

    assert config.with_(pool_size=2).max_retries == 3


@pytest.mark.parametrize("name, text", [("max_retries", "many"), ("auto_migrate", "maybe"), ("retry_jitter", "a bit")])
def test_a_variable_that_cannot_be_read_is_named_with_its_value(monkeypatch: pytest.MonkeyPatch, name: str, text: str):
    monkeypatch.setenv(environment_names()[name], text)

    with pytest.raises(ConfigurationError, match=f"{environment_names()[name]}='{text}'"):
        Config(database_url=URL)


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_retries", -1),
        ("max_retries", True),
        ("max_retries", 1.5),
        ("max_retries", 2**31),
        ("lock_timeout_seconds", 0),
        ("lock_timeout_seconds", float("inf")),
        pytest.param("lock_timeout_seconds", 10**400, id="giant"),
        ("lock_timeout_seconds", "600"),
        ("lock_timeout_seconds", None),
        ("default_task_timeout_seconds", float("nan")),
        ("default_task_timeout_seconds", 1e9),
        ("retry_backoff_multiplier", 0.5),
        ("retry_jitter", 1),
        ("worker_id", ""),
        ("worker_id", "a\0b"),
        ("db_schema", ""),
        ("db_schema", "x" * 64),
        ("pool_size", 0),
        ("max_payload_bytes", 0),
        ("auto_migrate", 1),
        ("listen_url", "sqlite:///x.db"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=f"{name} must be .*, got "):
        Config(database_url=URL, **{name: value})


@pytest.mark.parametrize("url", ["mysql://localhost/app", "tasks.db", "mysql+asyncmy://localhost/app"])
def test_another_kind_of_database_is_refused(url: str):
    with pytest.raises(ConfigurationError, match=r"must start with postgresql:// or sqlite:///"):
        Config(database_url=url)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+psycopg", "postgresql+asyncpg", "PostgreSQL+psycopg2"])
def test_postgresql_may_be_written_as_other_libraries_do(scheme: str):
    config = Config(
        database_url=f"{scheme}://me:pw@one:5432,two:5433/app?target_session_attrs=read-write&schema=jobs",
        listen_url=f"{scheme}://localhost/app?schema=jobs",
    )

    plain = "postgresql://me:pw@one:5432,two:5433/app?target_session_attrs=read-write"
    assert (config.database_url, config.db_schema) == (plain, "jobs")
    assert config.listen_url == "postgresql://localhost/app"
    assert Config(database_url="sqlite+aiosqlite:///tasks.db").database_url == "sqlite:///tasks.db"


def test_a_url_that_cannot_be_parsed_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match=r"database_url .* is not a URL"):
        Config(database_url="postgresql://[::1/app")
    with pytest.raises(ConfigurationError, match=r"listen_url .* is not a URL"):
        Config(database_url=URL, listen_url="postgresql://one,[::1:5432/app")


def test_the_words_of_libpq_in_place_of_a_url_are_refused_without_their_password():
    with pytest.raises(ConfigurationError, match="must start with postgresql://") as refused:
        Config(database_url=r"host=one,two password = 'hun\'ter2' sslpassword=hunter3 dbname=app")

    assert "host=one,two password=*** sslpassword=*** dbname=app" in str(refused.value)


def test_a_url_that_is_not_text_is_refused():
    number: Any = 5

    with pytest.raises(ConfigurationError, match="must be a string, got 5"):
        Config(database_url=number)


def test_blanks_around_the_url_are_left_out():
    assert Config(database_url=" postgresql://localhost/app\n").database_url == "postgresql://localhost/app"


def test_the_scheme_may_be_written_in_capitals():
    assert Config(database_url="SQLite:///tasks.db").is_sqlite


def test_the_schema_of_the_url_becomes_db_schema():
    config = Config(database_url="postgresql://localhost/app?schema=jobs")

    assert (config.database_url, config.db_schema) == ("postgresql://localhost/app", "jobs")


def test_other_parameters_of_the_url_stay_readable_for_libpq():
    config = Config(database_url="postgresql://localhost/app?options=-c%20a%3Db&schema=jobs&sslmode=require")

    assert config.database_url == "postgresql://localhost/app?options=-c%20a%3Db&sslmode=require"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://one,two/app",
        "postgresql://me:pw@one:5432,two:5433/app?target_session_attrs=read-write",
        "postgresql://one,two:5433/app",
        "postgresql://one:,two:5433",
        "postgresql://one,two?target_session_attrs=any",
        "postgresql:///app?host=one,two&port=5432,5433",
        "postgresql://me@/app?host=/run/pg,two&port=5432",
        "postgresql://%2Frun%2Fpg,two/app",
        "postgresql://[::1]:5432,[fe80::1%25eth0]:5433/app",
        "postgresql://one:5432,[::1]:5433/app",
        "postgresql://me:p[w@one/app",
        "postgresql://me:p?w#x@one,two/app?sslmode=prefer",
        "postgresql://one/a#b",
        "postgresql://one/app?password=a+b&user=me@there",
        "postgresql://one/app?options=-c%20a%3Db&hostaddr=127.0.0.1",
    ],
)
def test_a_url_means_to_us_what_it_means_to_libpq(url: str):
    mark = "&" if "=" in url else "?"
    given = Config(database_url=url, listen_url=f"{url}{mark}schema=jobs")
    beside = Config(database_url=f"{url}{mark}schema=jobs")

    assert (given.database_url, given.listen_url, given.db_schema) == (url, url, None)
    assert (beside.database_url, beside.db_schema) == (url, "jobs")
    assert conninfo_to_dict(beside.database_url) == conninfo_to_dict(url)


@pytest.mark.parametrize(
    "query, hosts, ports",
    [
        ("host=one:5432&host=two:5433", "one,two", "5432,5433"),
        ("host=one&host=two:5433&schema=jobs", "one,two", ",5433"),
        ("host=one&host=two&port=5433", "one,two", "5433"),
        ("host=one:5433", "one", "5433"),
    ],
)
def test_hosts_as_sqlalchemy_writes_them_are_all_kept(query: str, hosts: str, ports: str):
    means = conninfo_to_dict(Config(database_url=f"postgresql+psycopg://me:pw@/app?{query}").database_url)

    assert (means["host"], means["port"], means["dbname"]) == (hosts, ports, "app")


def test_db_schema_given_as_an_argument_wins_over_the_url():
    assert Config(database_url="postgresql://localhost/app?schema=jobs", db_schema="mine").db_schema == "mine"


def test_the_schema_of_the_url_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TASKLIB_DB_SCHEMA", "other")

    assert Config(database_url="postgresql://localhost/app?schema=jobs").db_schema == "jobs"


def test_a_copy_with_another_url_takes_that_urls_schema():
    config = Config(database_url="postgresql://localhost/app?schema=jobs")

    assert config.with_(database_url="postgresql://localhost/app?schema=new").db_schema == "new"


def test_a_copy_keeps_the_schema_when_something_else_changes():
    config = Config(database_url="postgresql://localhost/app?schema=jobs")

    assert config.with_(max_retries=0).db_schema == "jobs"


def test_sqlite_has_no_schema():
    with pytest.raises(ConfigurationError, match="SQLite has no schemas"):
        Config(database_url="sqlite:///tasks.db?schema=jobs")


def test_a_heartbeat_too_slow_for_the_worker_timeout_is_made_faster():
    assert Config(database_url=URL, worker_timeout_seconds=4).heartbeat_interval_seconds == 1


def test_the_backoff_is_made_from_the_settings():
    config = Config(database_url=URL, base_retry_delay_seconds=1, retry_jitter=0, max_retry_delay_seconds=3)

    assert [config.backoff(n) for n in range(3)] == [1, 2, 3]


def test_of_takes_a_url_or_a_config():
    config = Config.of(URL)

    assert (config.database_url, Config.of(config)) == (URL, config)


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:secret@host/app", "postgresql://me:***@host/app"),
        ("postgresql://:secret@host/app", "postgresql://:***@host/app"),
        ("postgresql://me:sec@ret@host/app", "postgresql://me:***@host/app"),
        ("postgresql://me:sec/ret@host/app", "postgresql://me:***@host/app"),
        ("postgresql://me:sec?ret@host/app?a=b", "postgresql://me:***@host/app?a=b"),
        ("postgresql://me:a?b@c/d#e@host/app", "postgresql://me:***@host/app"),
        ("postgresql://host/app?user=me&password=secret", "postgresql://host/app?user=me&password=***"),
        ("postgresql://host/app?pass%77ord=secret&user=me", "postgresql://host/app?pass%77ord=***&user=me"),
        ("postgresql://host/app?oauth_client_secret=x", "postgresql://host/app?oauth_client_secret=***"),
        ("postgresql://host:5432/app", "postgresql://host:5432/app"),
        ("postgresql://one:1,two:2/app?user=me@there", "postgresql://one:1,two:2/app?user=me@there"),
        ("postgresql://[::1]:1,[::2]/app?a=b@c", "postgresql://[::1]:1,[::2]/app?a=b@c"),
        ("postgresql://one,two:2/app?user=me@a&password=x@y", "postgresql://one,two:2/app?user=me@a&password=***"),
        ("postgresql://me:secret@one,two:2?user=a@b", "postgresql://me:***@b"),
        ("sqlite:///tasks.db", "sqlite:///tasks.db"),
    ],
)
def test_a_redacted_url_shows_no_password(url: str, shown: str):
    assert redact_url(url) == shown


def test_the_representation_hides_the_passwords_of_both_urls():
    config = Config(
        database_url="postgresql://me:one-secret@host/app", listen_url="postgresql://me:two-secret@host/app"
    )

    assert "secret" not in repr(config)


def test_the_representation_names_only_what_was_changed():
    assert repr(Config(database_url=URL, max_retries=1)) == f"Config(database_url={URL!r}, max_retries=1)"


def test_every_field_has_its_environment_variable():
    assert environment_names() == {entry.name: f"TASKLIB_{entry.name.upper()}" for entry in fields(Config)}
