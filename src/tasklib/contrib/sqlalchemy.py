"""Our tables for SQLAlchemy's select(): to read tasks beside your own rows.  They cannot be written to.

    from tasklib.contrib.sqlalchemy import TaskIdType, tables

    tasks = tables().tasks
    orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("task_id", TaskIdType()))

    select(orders.c.id, tasks.c.state).join_from(orders, tasks, tasks.c.id == orders.c.task_id)

They are in a MetaData of their own, so neither `create_all()` nor Alembic knows them.  Submit with `submit()`, which
can join your session's transaction: `send.options(connection=session).submit(...)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.contrib.late import load

if TYPE_CHECKING:
    from sqlalchemy import Dialect, FromClause
    from sqlalchemy.types import TypeDecorator, TypeEngine

    class TaskIdType(TypeDecorator[UUID]):
        """The type of a column that holds a task's id: `uuid` on PostgreSQL, on SQLite the same text as ours."""

        impl = TypeEngine


@dataclass(frozen=True, slots=True)
class Tables:
    """What can be read: each has the columns of the table as `.c`, and SQLAlchemy refuses to write to it.

    Examples:
        >>> from tasklib.contrib.sqlalchemy import tables
        >>> "state" in tables(schema="jobs").tasks.c
        True
    """

    tasks: FromClause
    workers: FromClause
    schedules: FromClause


@cache
def tables(schema: str | None = None) -> Tables:
    """The tables of a queue; `schema` as in its URL, on PostgreSQL.

    Examples:
        >>> import sqlalchemy as sa
        >>> from tasklib.contrib.sqlalchemy import tables
        >>> other = TaskQueue("sqlite:///app.db")
        >>> task_id = other.enqueue("send_email", {"to": "ada"})
        >>> tasks = tables().tasks
        >>> with sa.create_engine("sqlite:///app.db").connect() as connection:
        ...     connection.execute(sa.select(tasks.c.name, tasks.c.kwargs).where(tasks.c.state == "pending")).all()
        [('send_email', {'to': 'ada'})]
        >>> other.close()
    """
    load("sqlalchemy", "sqlalchemy")
    from sqlalchemy import JSON, BigInteger, Column, Float, Integer, MetaData, Table, Text, select
    from sqlalchemy.dialects.postgresql import JSONB

    kinds: dict[str, Any] = _types()
    data = JSON().with_variant(JSONB(), "postgresql")
    of = {
        **dict.fromkeys(("id", "instance", "last_task_id"), kinds["TaskIdType"]()),
        **dict.fromkeys(("seq", "version"), BigInteger()),
        **dict.fromkeys(("priority", "attempts", "retry_count", "max_retries", "lost_count"), Integer()),
        **dict.fromkeys(("pid", "concurrency"), Integer()),
        **dict.fromkeys(("timeout_seconds", "progress"), Float()),
        **dict.fromkeys(("args", "kwargs", "tags", "headers", "result", "history", "log", "plan", "info"), data),
    }
    metadata = MetaData(schema=schema)

    def table(name: str, columns: str) -> FromClause:
        made = [
            Column(each, of.get(each) or (kinds["Moment"]() if each.endswith(("_at", "_until")) else Text()))
            for each in columns.split()
        ]
        # SQLAlchemy refuses INSERT, UPDATE and DELETE on a subquery; both databases see through it to the indexes.
        return select(Table(name, metadata, *made)).subquery(name)

    return Tables(
        tasks=table("tasks", _TASKS),
        workers=table("tasklib_workers", _WORKERS),
        schedules=table("tasklib_schedules", _SCHEDULES),
    )


_TASKS = """
id seq version name state scheduled_at started_at completed_at created_at updated_at next_retry_at locked_until
expires_at cancel_requested_at timeout_seconds progress priority attempts retry_count max_retries lost_count args kwargs
tags headers result history log error progress_message worker_id finished_by unique_key concurrency_key fingerprint
due_at
"""
_WORKERS = "instance worker_id host pid started_at heartbeat_at timeout_seconds concurrency info"
_SCHEDULES = "name plan next_run_at last_run_at last_task_id paused_at paused_by error created_at updated_at"


def __getattr__(name: str) -> Any:
    if name == "TaskIdType":
        return _types()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _types() -> dict[str, Any]:
    """The types of our columns, made when SQLAlchemy is needed first."""
    load("sqlalchemy", "sqlalchemy")
    from sqlalchemy import DateTime, String
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.types import TypeDecorator

    class TaskIdType(TypeDecorator[UUID]):
        """The type of a column that holds a task's id: `uuid` on PostgreSQL, on SQLite the same text as ours."""

        impl = String(36)
        cache_ok = True

        def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
            return dialect.type_descriptor(postgresql.UUID() if dialect.name == "postgresql" else String(36))

        def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
            if value is None:
                return None
            given = value if isinstance(value, UUID) else UUID(str(value))
            return UUID(int=given.int) if dialect.name == "postgresql" else str(given)

        def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
            return value if value is None or isinstance(value, UUID) else UUID(value)

    class Moment(TypeDecorator[datetime]):
        """A time with its zone; SQLite keeps ours as text in UTC."""

        impl = DateTime(timezone=True)
        cache_ok = True

        def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
            return dialect.type_descriptor(DateTime(timezone=True) if dialect.name == "postgresql" else String())

        def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
            if dialect.name == "postgresql" or not isinstance(value, datetime):
                return value
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

        def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
            return value if value is None or isinstance(value, datetime) else datetime.fromisoformat(value + "+00:00")

    return {"TaskIdType": TaskIdType, "Moment": Moment}
