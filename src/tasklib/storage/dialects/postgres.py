"""What is PostgreSQL's own: how statements are written for a driver, and what its errors mean."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import psycopg
from psycopg import errors as pg
from psycopg import sql as identifiers

from tasklib.core.config import redact_url
from tasklib.core.redaction import has_bare_at, redact_url_error
from tasklib.errors import (
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnavailable,
    PermissionDenied,
    SchemaMissing,
    StorageError,
)
from tasklib.storage.statement import PARAMETER, DuplicateKey, Sql, load_sql, pyformat


class PostgresDialect:
    """The statements of one schema, ready to send."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        # The trigger computes the same name; md5 keeps it within the length of an identifier.
        digest = hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()
        self.channel = f"tasklib_{digest[:16]}"

    @cached_property
    def quoted_schema(self) -> str:
        """The schema name as an identifier."""
        return identifiers.Identifier(self.schema).as_string(None)

    @cached_property
    def statements(self) -> Mapping[str, Sql]:
        """Every statement with its schema filled in, parameters still as `:name`."""
        return load_sql("postgres")

    def fill(self, text: str) -> str:
        """The text with schema and channel in place of their tokens."""
        # The schema last: its name may hold anything, even what looks like a token.
        return text.replace("{channel}", self.channel).replace("{schema}", self.quoted_schema)

    def fill_pyformat(self, text: str) -> str:
        """The text with `:name` parameters as psycopg takes it, with `%(name)s`, and filled in."""
        written = pyformat(text).replace("{channel}", self.channel)
        return written.replace("{schema}", self.quoted_schema.replace("%", "%%"))

    @cached_property
    def pyformat(self) -> Mapping[str, str]:
        """Every statement as psycopg takes it, with `%(name)s` parameters."""
        return {name: self.fill_pyformat(sql.text) for name, sql in self.statements.items()}

    @cached_property
    def encoded(self) -> Mapping[str, tuple[bytes, bool]]:
        """Every statement as bytes, which psycopg need not encode each time, and whether it is planned each time."""
        return {name: (text.encode(), self.statements[name].custom_plan) for name, text in self.pyformat.items()}

    @cached_property
    def numbered(self) -> Mapping[str, tuple[bytes, tuple[str, ...]]]:
        """Every statement that is planned once, as the server takes it, with `$1`, and its parameters in that order."""
        return {name: self._number(sql.text) for name, sql in self.statements.items() if not sql.custom_plan}

    def _number(self, text: str) -> tuple[bytes, tuple[str, ...]]:
        places: dict[str, int] = {}
        written = PARAMETER.sub(lambda found: f"${places.setdefault(found[1], len(places) + 1)}", text)
        return self.fill(written).encode(), tuple(places)


def translate(error: Exception) -> Exception:
    """The tasklib error that says what the database's error means to a user."""
    if not isinstance(error, psycopg.Error):
        return error
    text = (error.diag.message_primary or str(error) or type(error).__name__).strip()
    silent = error.sqlstate is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    translated = _unavailable(text) if silent else explain(error.sqlstate, text)
    translated.__cause__ = error
    return translated


def unreachable(url: str, error: Exception) -> DatabaseUnavailable:
    """The tasklib error for a connection that could not be opened, without the password."""
    remedy = (
        "write each @ in the password as %40"
        if has_bare_at(url)
        else "check the URL, and that the server runs and accepts this user"
    )
    return DatabaseUnavailable(f"cannot connect to {redact_url(url)}: {redact_url_error(error, url)}; {remedy}")


def explain(sqlstate: str | None, text: str) -> StorageError:
    """The tasklib error for what the server answered, whichever driver it came through."""
    match sqlstate or "":
        case "53100" | "53400":  # disk_full, configuration_limit_exceeded
            return DatabaseFull(f"PostgreSQL has no room left: {text}; free space, nothing was stored")
        case "42501":  # insufficient_privilege
            return PermissionDenied(f"PostgreSQL refused: {text}; grant the role what it needs")
        case "42P01" | "3F000":  # undefined_table, invalid_schema_name
            return SchemaMissing(f"PostgreSQL says: {text}; run `tasklib migrate` on this database")
        case "55P03" | "57014" | "53300":  # lock_not_available, query_canceled, too_many_connections
            return DatabaseBusy(f"PostgreSQL did not answer in time: {text}")
        case "40001" | "40P01":  # serialization_failure, deadlock_detected
            return DatabaseBusy(f"PostgreSQL undid the work, because others changed the same rows: {text}; try again")
        case "25006":  # read_only_sql_transaction
            return DatabaseUnavailable(
                f"this PostgreSQL server accepts no writes: {text}; it is a standby, or is set to read-only: name "
                "every server that may be the primary in the URL, with ?target_session_attrs=read-write"
            )
        # Connecting, resources, shutdown and I/O; the last two are timeouts that end the session.
        case code if code[:2] in ("08", "28", "53", "57", "58") or code in ("25P03", "25P04"):
            return _unavailable(text)
        case "26000" | "42P05":  # invalid_sql_statement_name, duplicate_prepared_statement
            return StorageError(
                f"PostgreSQL says: {text}; a pooler on the way lends sessions, so set prepare_statements=False"
            )
        case "23505":  # unique_violation
            return DuplicateKey(f"PostgreSQL refused the statement: {text}")
        # check_violation, of a domain: it is named after its table and column, in whatever language the server speaks.
        case "23514" if (domain := _DOMAIN.search(text)) is not None:
            return StorageError(
                f"PostgreSQL refused the value for column {domain['column']} of table {domain['table']}: {text}; its "
                "constraint is described in docs/reference/schema/postgres.sql"
            )
        case _:
            return StorageError(f"PostgreSQL refused the statement: {text}")


_DOMAIN: Final = re.compile(r"\btasklib_(?P<table>tasks|steps)_(?P<column>\w+)")


def _unavailable(text: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"PostgreSQL cannot be reached or went away: {text}")


def is_conflict(error: Exception) -> bool:
    """True if the same work may succeed, or be refused with its reason, when simply done again.

    After a unique violation that reason is the row another transaction has committed since we looked.
    """
    return isinstance(error.__cause__, pg.DeadlockDetected | pg.SerializationFailure | pg.UniqueViolation)


def is_read_only(error: BaseException) -> bool:
    """True if the server accepts no writes: a connection that was made anew may reach one that does."""
    return isinstance(error.__cause__, pg.ReadOnlySqlTransaction)
