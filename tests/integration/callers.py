"""The callers of `submit(connection=...)`: one for each kind of connection a program may already have open.

A caller opens its connection with a transaction begun, submits on it, and commits or rolls back by the means of its
own library.  Asynchronous ones run on an event loop of their own, so that every test reads the same.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import django
import django.conf
import django.db
import django.db.transaction
import psycopg
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext import asyncio as sqlalchemy_async
from uuid_utils.compat import uuid7

from tasklib.core.config import Config
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import NewTask, Task
from tasklib.core.task_id import TaskId
from tasklib.storage import connect
from tasklib.storage.database import Database
from tasklib.storage.operations.reading.lists import list_tasks
from tasklib.storage.operations.tasks import submit_tasks
from tasklib.storage.statement import Operation, T


class Caller:
    """A program with a blocking connection; `begin` is what it does before its first statement."""

    def __init__(
        self, connection: Any, begin: Callable[[], Any], commit: Callable[[], Any], rollback: Callable[[], Any]
    ) -> None:
        self.connection = connection
        self.begin, self.commit, self.rollback = begin, commit, rollback

    def close(self) -> None:
        self.connection.close()

    def submit(self, database: Database, *new: NewTask) -> list[TaskId]:
        return self.run(database, lambda: submit_tasks(new))

    def run(self, database: Database, make: Callable[[], Operation[T]]) -> T:
        return database.run_on(self.connection, make)


class AsyncCaller(Caller):
    """A program with an asynchronous connection."""

    def __init__(self, runner: asyncio.Runner, connection: Any, begin: Any, commit: Any, rollback: Any) -> None:
        def awaited(act: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
            async def call() -> Any:
                return await act()

            return lambda: runner.run(call())

        super().__init__(connection, awaited(begin), awaited(commit), awaited(rollback))
        self.runner = runner

    def close(self) -> None:
        self.runner.run(self.connection.close())

    def run(self, database: Database, make: Callable[[], Operation[T]]) -> T:
        return self.runner.run(database.arun_on(self.connection, make))


def nothing() -> None:
    """How a library begins that opens its transactions by itself."""


async def anothing() -> None:
    """The same, awaited."""


@contextmanager
def psycopg_connection(url: str) -> Iterator[Caller]:
    connection = psycopg.connect(plain(url))
    yield Caller(connection, nothing, connection.commit, connection.rollback)
    connection.close()


@contextmanager
def psycopg_async_connection(url: str) -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(plain(url)))
        yield AsyncCaller(runner, connection, anothing, connection.commit, connection.rollback)
        runner.run(connection.close())


@contextmanager
def asyncpg_connection(url: str) -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(plain(url)))
        yield asyncpg_caller(runner, connection)
        runner.run(connection.close())


@contextmanager
def asyncpg_pool(url: str) -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        pool = asyncpg.create_pool(plain(url), min_size=1, max_size=1)

        async def acquire() -> Any:
            await pool
            return await pool.acquire()

        connection = runner.run(acquire())
        yield asyncpg_caller(runner, connection)
        runner.run(pool.release(connection))
        runner.run(pool.close())


def asyncpg_caller(runner: asyncio.Runner, connection: Any) -> Caller:
    transactions: list[Any] = []

    async def begin() -> None:
        transactions.append(connection.transaction())
        await transactions[-1].start()

    return AsyncCaller(
        runner, connection, begin, lambda: transactions.pop().commit(), lambda: transactions.pop().rollback()
    )


@contextmanager
def sqlite3_connection(url: str) -> Iterator[Caller]:
    """Transactions in Python's old way: opened before the first write."""
    connection = sqlite3.connect(path_of(url))
    yield Caller(connection, nothing, connection.commit, connection.rollback)
    connection.close()


@contextmanager
def sqlite3_by_hand(url: str) -> Iterator[Caller]:
    """Transactions written out by the program."""
    connection = sqlite3.connect(path_of(url), isolation_level=None)
    yield Caller(connection, lambda: connection.execute("BEGIN"), connection.commit, connection.rollback)
    connection.close()


@contextmanager
def aiosqlite_connection(url: str) -> Iterator[Caller]:
    with asyncio.Runner() as runner:

        async def connect() -> aiosqlite.Connection:
            return await aiosqlite.connect(path_of(url))

        connection = runner.run(connect())
        yield AsyncCaller(runner, connection, anothing, connection.commit, connection.rollback)
        runner.run(connection.close())


def sqlalchemy_connection(driver: str) -> Opener:
    return sqlalchemy_blocking(driver, lambda engine: engine.connect())


def sqlalchemy_session(driver: str) -> Opener:
    return sqlalchemy_blocking(driver, sqlalchemy.orm.Session)


def sqlalchemy_scoped_session(driver: str) -> Opener:
    return sqlalchemy_blocking(
        driver, lambda engine: sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(engine))
    )


def sqlalchemy_blocking(driver: str, connect: Callable[[sqlalchemy.Engine], Any]) -> Opener:
    @contextmanager
    def opened(url: str) -> Iterator[Caller]:
        engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver), poolclass=sqlalchemy.NullPool)
        connection = connect(engine)
        yield Caller(connection, nothing, connection.commit, connection.rollback)
        connection.close()

    return opened


def sqlalchemy_async_connection(driver: str) -> Opener:
    return sqlalchemy_awaiting(driver, lambda engine: engine.connect())


def sqlalchemy_async_session(driver: str) -> Opener:
    return sqlalchemy_awaiting(driver, sqlalchemy_async.AsyncSession)


def sqlalchemy_async_scoped_session(driver: str) -> Opener:
    def scoped(engine: sqlalchemy_async.AsyncEngine) -> Any:
        sessions = sqlalchemy_async.async_sessionmaker(engine)
        return sqlalchemy_async.async_scoped_session(sessions, scopefunc=lambda: "one")

    return sqlalchemy_awaiting(driver, scoped)


def sqlalchemy_awaiting(driver: str, connect: Callable[[sqlalchemy_async.AsyncEngine], Any]) -> Opener:
    @contextmanager
    def opened(url: str) -> Iterator[Caller]:
        engine = sqlalchemy_async.create_async_engine(sqlalchemy_url(url, driver), poolclass=sqlalchemy.NullPool)
        with asyncio.Runner() as runner:

            async def start() -> Any:
                made = connect(engine)
                return await made if isinstance(made, sqlalchemy_async.AsyncConnection) else made

            connection = runner.run(start())
            yield AsyncCaller(runner, connection, anothing, connection.commit, connection.rollback)
            runner.run(connection.close())

    return opened


@contextmanager
def django_connection(url: str) -> Iterator[Caller]:
    """`django.db.connection` inside `transaction.atomic`."""
    with django_database(url):
        blocks: list[Any] = []

        def begin() -> None:
            blocks.append(django.db.transaction.atomic())
            blocks[-1].__enter__()

        def commit() -> None:
            blocks.pop().__exit__(None, None, None)

        def rollback() -> None:
            django.db.transaction.set_rollback(True)
            commit()

        yield Caller(django.db.connection, begin, commit, rollback)


@contextmanager
def django_database(url: str) -> Iterator[None]:
    """Django with this database as its default one."""
    configure_django()
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        chosen = {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    else:
        login = {"USER": parts.username, "PASSWORD": parts.password, "HOST": parts.hostname, "PORT": parts.port}
        chosen = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path.removeprefix("/")}
        chosen |= {key: str(value) for key, value in login.items() if value is not None}
    connections = django.db.connections
    connections.settings = connections.configure_settings({"default": chosen})
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]


def configure_django() -> None:
    if not django.conf.settings.configured:
        django.conf.settings.configure()
        django.setup()


Opener = Callable[[str], Any]

POSTGRES: dict[str, Opener] = {
    "psycopg": psycopg_connection,
    "psycopg-async": psycopg_async_connection,
    "asyncpg": asyncpg_connection,
    "asyncpg-pool": asyncpg_pool,
    "sqlalchemy-connection": sqlalchemy_connection("psycopg"),
    "sqlalchemy-session": sqlalchemy_session("psycopg"),
    "sqlalchemy-scoped": sqlalchemy_scoped_session("psycopg"),
    "sqlalchemy-asyncpg-connection": sqlalchemy_async_connection("asyncpg"),
    "sqlalchemy-asyncpg-session": sqlalchemy_async_session("asyncpg"),
    "sqlalchemy-async-scoped": sqlalchemy_async_scoped_session("asyncpg"),
    "sqlalchemy-async-connection": sqlalchemy_async_connection("psycopg"),
    "sqlalchemy-async-session": sqlalchemy_async_session("psycopg"),
    "django": django_connection,
}
SQLITE: dict[str, Opener] = {
    "sqlite3": sqlite3_connection,
    "sqlite3-by-hand": sqlite3_by_hand,
    "aiosqlite": aiosqlite_connection,
    "sqlalchemy-connection": sqlalchemy_connection("pysqlite"),
    "sqlalchemy-session": sqlalchemy_session("pysqlite"),
    "sqlalchemy-scoped": sqlalchemy_scoped_session("pysqlite"),
    "sqlalchemy-async-connection": sqlalchemy_async_connection("aiosqlite"),
    "sqlalchemy-async-session": sqlalchemy_async_session("aiosqlite"),
    "django": django_connection,
}


def plain(url: str) -> str:
    """The URL without its schema: our statements name it themselves."""
    return url.partition("?")[0]


def path_of(url: str) -> str:
    """The file of a SQLite URL."""
    return url.removeprefix("sqlite:///")


def sqlalchemy_url(url: str, driver: str) -> str:
    """The same database as SQLAlchemy writes it."""
    scheme, _, rest = plain(url).partition("://")
    return f"{'sqlite' if scheme == 'sqlite' else 'postgresql'}+{driver}://{rest}"


def a_task(**fields: Any) -> NewTask:
    return NewTask(**{"id": uuid7(), "name": "mail", "kwargs": {}, "max_retries": 3} | fields)


def migrated(config: str | Config) -> Database:
    """The database with its tables made, so that no test opens a transaction in their way."""
    database = connect(Config.of(config))
    database.migrate()
    return database


def stored_in(database: Database) -> list[Task]:
    """Every committed task."""
    return database.run(lambda: list_tasks(TaskFilter(), limit=100))
