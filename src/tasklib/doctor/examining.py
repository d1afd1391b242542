"""The examination: whether the database can be used, how it is reached, and everything in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from tasklib.core.config import Config, redact_url
from tasklib.core.time.clock import Clock
from tasklib.doctor.findings import Fault, Finding, Thresholds, judge
from tasklib.errors import ForeignTable, SchemaError, SchemaMismatch, SchemaTooNew, StorageError
from tasklib.installation import REMEDY, complaint
from tasklib.queue import TaskQueue
from tasklib.service.evidence import OLDEST_SQLITE, Evidence, is_sqlite_too_old, lends_sessions


def examine(config: Config, thresholds: Thresholds | None = None, *, clock: Clock | None = None) -> list[Finding]:
    """Everything that is wrong with the queue of these settings; an empty list is a clean bill of health."""
    return [*_judge_installation(), *_examine_database(config, thresholds, clock)]


def _judge_installation() -> Iterator[Finding]:
    found = complaint()
    if found is not None:
        yield Finding(Fault.FOREIGN_PACKAGE, found.removesuffix(f": {REMEDY}"), REMEDY)


def _examine_database(config: Config, thresholds: Thresholds | None, clock: Clock | None) -> list[Finding]:
    if config.is_sqlite and is_sqlite_too_old():
        return [_old_sqlite()]
    # It migrates nothing, and works through any pooler.
    with TaskQueue(config.with_(auto_migrate=False, prepare_statements=False), clock=clock) as queue:
        evidence = Evidence(queue)
        replaced = _replaced(evidence)
        if replaced is not None:
            return [replaced]
        try:
            seen, has_alembic = evidence.look(), evidence.has_alembic()
        except SchemaMismatch as error:
            return [Finding(Fault.SCHEMA_MISMATCH, str(error), "use the tasklib that made the tables, or start over")]
        except SchemaError as error:
            return [Finding(Fault.SCHEMA_BEHIND, str(error), _remedy_of(error))]
        except StorageError as error:
            if not evidence.has_write_ahead_log():
                return [_not_wal(error)]
            raise
    found = [*_judge_way(config), *judge(seen, thresholds or Thresholds())]
    return [*found, _beside_alembic(config)] if has_alembic else found


def _beside_alembic(config: Config) -> Finding:
    """Whether env.py has the filter cannot be seen from here; a program that has it ignores this finding (--ignore)."""
    apart = "" if config.is_sqlite else ", or keep the tables apart with ?schema= in the URL"
    text = "alembic_version lies beside our tables: autogenerate proposes to drop them unless env.py leaves them out"
    remedy = (
        "include_name=tasklib.contrib.alembic.include_name in context.configure() of env.py, "
        f"then tasklib doctor --ignore {Fault.BESIDE_ALEMBIC}{apart}"
    )
    return Finding(Fault.BESIDE_ALEMBIC, text, remedy)


def _old_sqlite() -> Finding:
    text = f"this Python links SQLite {sqlite3.sqlite_version}, which is older than {OLDEST_SQLITE}"
    return Finding(Fault.OLD_SQLITE, text, "use a newer Python, or a system with a newer SQLite")


def _remedy_of(error: SchemaError) -> str:
    match error:
        case SchemaTooNew():
            return "upgrade tasklib here"
        case ForeignTable():
            return "use another schema or file"
        case _:
            return "tasklib migrate"


def _replaced(evidence: Evidence) -> Finding | None:
    """Looked at before the file is opened, which would make a new one where the old one was deleted."""
    found = evidence.replaced_file()
    if found is None:
        return None
    process, is_there = found
    how = "replaced by another" if is_there else "deleted"
    text = f"the SQLite file was {how} while process {process} was using it, which refuses to go on with the old one"
    return Finding(Fault.REPLACED_FILE, text, "put the old file back, or restart every program that uses it")


def _not_wal(error: StorageError) -> Finding:
    remedy = "end what holds the file, and keep it on a local disk: its next use turns the write-ahead log on"
    return Finding(Fault.NOT_WAL, str(error), remedy)


def _judge_way(config: Config) -> Iterator[Finding]:
    """What a pooler between here and the server breaks, where the settings do not say that there is one."""
    if config.is_sqlite:
        return
    if not lends_sessions(config.database_url, config.connect_timeout_seconds):
        return
    where = f"{redact_url(config.database_url)} is a pooler in transaction mode, such as PgBouncer"
    if config.prepare_statements:
        text = f"{where}, and prepare_statements is on: what is prepared or set in a session there reaches others"
        yield Finding(Fault.POOLER_PREPARED, text, "TASKLIB_PREPARE_STATEMENTS=false, or prepare_statements=False")
    listening = config.listen_url
    if listening is None or lends_sessions(listening, config.connect_timeout_seconds):
        also = "" if listening is None else f", and so is listen_url, {redact_url(listening)}"
        text = f"{where}{also}: LISTEN receives nothing there, so idle workers notice a new task only when they poll"
        remedy = "give the server's own address: TASKLIB_LISTEN_URL=postgresql://…, or listen_url="
        yield Finding(Fault.POOLER_LISTEN, text, remedy)
