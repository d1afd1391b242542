"""Alembic beside tasklib in one database: autogenerate leaves our tables alone, and a revision can make them.

In `env.py`:

    from tasklib.contrib.alembic import include_name

    context.configure(connection=connection, target_metadata=metadata, include_name=include_name)

In a revision, if your migrations shall make our tables instead of `tasklib migrate`:

    from tasklib.contrib.alembic import upgrade as upgrade_tasklib

    def upgrade() -> None:
        upgrade_tasklib(op)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, TypeAlias, overload

from tasklib.errors import ConfigurationError
from tasklib.storage.migrate import migrations, tables
from tasklib.storage.shared_migrate import migrate_on, script_for

NameType: TypeAlias = Literal[
    "schema", "table", "column", "index", "unique_constraint", "foreign_key_constraint", "check_constraint"
]
ParentNames: TypeAlias = MutableMapping[Literal["schema_name", "table_name", "schema_qualified_table_name"], str | None]
IncludeName: TypeAlias = Callable[[str | None, NameType, ParentNames], bool]
"""What Alembic calls for each name that it finds in the database: whether to compare it with the models."""


@overload
def include_name(name: str | None, type_: NameType, parent_names: ParentNames, /) -> bool: ...
@overload
def include_name(previous: IncludeName | None = None, /, *, schema: str | None = None) -> IncludeName: ...
def include_name(*given: Any, schema: str | None = None) -> Any:
    """Hide our tables from autogenerate, by their exact names: `include_name=include_name` in `context.configure`.

    Called with a filter of yours it gives one that asks both: `include_name=include_name(mine)`.  With `schema` it
    hides them only there: `include_name=include_name(schema="jobs")`.

    Examples:
        >>> from tasklib.contrib.alembic import include_name
        >>> include_name("tasks", "table", {"schema_name": None})  # Alembic asks, and leaves it alone
        False
        >>> include_name("orders", "table", {"schema_name": None})
        True
        >>> include = include_name(lambda name, type_, parent_names: name != "legacy")  # beside a filter of yours
        >>> include("legacy", "table", {"schema_name": None})
        False
    """
    if len(given) == 3:
        return _is_yours(*given, schema=None)
    previous = given[0] if given else None
    if len(given) > 1 or not (previous is None or callable(previous)):
        raise ConfigurationError(
            f"include_name takes another filter or nothing, got {given!r}; write include_name=include_name in "
            "context.configure(), or include_name=include_name(your_filter)"
        )

    def include(name: str | None, type_: NameType, parent_names: ParentNames) -> bool:
        yours = _is_yours(name, type_, parent_names, schema=schema)
        return yours and (previous is None or bool(previous(name, type_, parent_names)))

    return include


def upgrade(op: Any, *, schema: str | None = None) -> list[str]:
    """Make our tables, or bring them up to date, in the transaction of a revision; returns the migrations applied.

    Run again it does nothing, so each revision that follows an upgrade of tasklib may call it.  With `alembic upgrade
    --sql` it writes the statements of all migrations instead.

    Examples:
        >>> import sqlalchemy as sa
        >>> from alembic.migration import MigrationContext
        >>> from alembic.operations import Operations
        >>> from tasklib.contrib.alembic import upgrade
        >>> with sa.create_engine("sqlite:///app.db").connect() as connection:
        ...     upgrade(Operations(MigrationContext.configure(connection)))  # in a revision: upgrade(op)
        ['0001_initial']
    """
    context = op.get_context()
    if not context.as_sql:
        return migrate_on(op.get_bind(), schema=schema)
    dialect = "sqlite" if context.dialect.name == "sqlite" else "postgres"
    context.impl.static_output(script_for(dialect, schema))
    return [each.name for each in migrations(dialect)]


def _is_yours(name: str | None, type_: str, parent_names: ParentNames, *, schema: str | None) -> bool:
    if type_ != "table" or name not in _OURS:
        return True
    where = parent_names.get("schema_name")
    if schema is not None and where != schema:
        return True
    return name == "tasks" and _is_modelled(name, where)


def _is_modelled(name: str, schema: str | None) -> bool:
    """Whether the models of the running Alembic have a table of this name: then it is theirs, and ours is elsewhere."""
    context = sys.modules.get("alembic.context")
    try:
        metadata: Any = context.get_context().opts.get("target_metadata") if context is not None else None
    except (NameError, AttributeError):  # no environment is running
        return False
    several = metadata if isinstance(metadata, list | tuple) else [metadata]
    key = name if schema is None else f"{schema}.{name}"
    return any(key in getattr(each, "tables", ()) for each in several)


_OURS = frozenset({*tables("postgres"), *tables("sqlite")})
