"""One schema of a PostgreSQL server, on a connection set up as the library sets up its own, with eyes for the plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID, uuid4

import psycopg
from psycopg import ClientCursor

from tasklib.core.time.clock import DatabaseClock
from tasklib.storage.dialects.postgres import PostgresDialect, translate
from tasklib.storage.operations.claims import Claim, Position, claim_tasks
from tasklib.storage.operations.workers import Registration, register_worker
from tasklib.storage.postgres.schema import ensure_schema
from tasklib.storage.postgres.sending import execute
from tasklib.storage.postgres.session import SESSION
from tasklib.storage.run import run_blocking, steps
from tasklib.storage.statement import PARAMETER, Operation, Statement, T
from tests.fixtures.backends import libpq_url
from tests.plans.crowd import KINDS, POSTGRES, one_statement

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, WAL, TIMING OFF, FORMAT JSON) "


class Plan:
    """How a statement was run, and what it touched."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """Every node, the root first."""
        found, waiting = [], [self.root]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += node.get("Plans", ())
        return found

    @property
    def buffers(self) -> int:
        """The pages touched."""
        return sum(_buffers(node) for node in self._apart)

    @property
    def logged(self) -> int:
        """The bytes of log written."""
        return sum(int(node["WAL Bytes"]) for node in self._apart)

    @property
    def _apart(self) -> list[dict[str, Any]]:
        """The root, and each writing CTE that nobody reads: it runs after the root has ended."""
        read = {f"CTE {node['CTE Name']}" for node in self.nodes if node["Node Type"] == "CTE Scan"}
        writing = [
            n for n in self.nodes if n["Node Type"] == "ModifyTable" and n.get("Subplan Name", "").startswith("CTE")
        ]
        return [self.root, *(n for n in writing if n["Subplan Name"] not in read)]

    @property
    def whole_scans(self) -> list[str]:
        """Reads of the task table from end to end: no condition that an index narrows, and no limit above."""
        return [
            f"{node['Node Type']} of {node.get('Index Name', 'tasks')}: {node['Actual Rows']} rows"
            for node in self.nodes
            if node.get("Relation Name") == "tasks" and node["Node Type"] in ("Seq Scan", "Parallel Seq Scan")
        ]


def _buffers(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


class PostgresTable:
    """The task table of one schema; autovacuum keeps its hands off, so that statistics are as old as a test wants."""

    def __init__(self, url: str, number: int = 0) -> None:
        given = dict(parse_qsl(urlsplit(url).query))["schema"]
        self.schema = f"{given}_{number}" if number else given
        base = urlsplit(libpq_url(url))._replace(query="").geturl()
        options = f"-csearch_path={self.schema} -cclient_min_messages=error"
        self.connection = psycopg.connect(base, autocommit=True, options=options, prepare_threshold=1_000_000)
        self.dialect = PostgresDialect(self.schema)
        ensure_schema(self.connection, self.dialect, migrate=True)
        self.execute("ALTER TABLE tasks SET (autovacuum_enabled = off)")
        # A million rows in the log would prove nothing and take twice the time.
        self.execute("ALTER TABLE tasks SET UNLOGGED")
        self.connection.execute(SESSION)
        self.instance = self.register()
        self._prepared: set[str] = set()

    def execute(self, text: str, parameters: Any = None) -> psycopg.Cursor[Any]:
        return self.connection.execute(text.encode(), parameters)

    def value(self, text: str, parameters: Any = None) -> Any:
        row = self.execute(text, parameters).fetchone()
        assert row is not None
        return row[0]

    def run(self, operation: Operation[T]) -> T:
        """Run an operation as the library does."""
        return run_blocking(
            steps(operation, translate, DatabaseClock()), lambda s: execute(self.connection, self.dialect, s)
        )

    def register(self) -> UUID:
        instance = uuid4()
        self.run(register_worker(Registration(instance, "worker-1", "here", 1, 30.0, 10, ())))
        return instance

    def fill(self, kind: str, rows: int) -> None:
        self.execute(POSTGRES, {**KINDS[kind].parameters, "rows": rows})

    def claim(
        self,
        names: list[str],
        limit: int,
        *,
        plain: bool = True,
        keyed: bool = False,
        after: Sequence[Position] = (),
        woken: Sequence[int] = (),
        lone: bool = False,
    ) -> Operation[Any]:
        return claim_tasks(
            Claim(
                instance=self.instance,
                worker_id="worker-1",
                names=names,
                limit=limit,
                lease_seconds=60.0,
                held=[],
                plain=plain and not keyed,
                after=after,
                woken=woken,
                lone=lone,
                keyed=keyed,
                limited=keyed,
            )
        )

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens inside has not happened."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("ROLLBACK")

    def explain(self, make: Statement | Callable[[], Operation[Any]]) -> Plan:
        """Run the (first) statement as the driver runs it, planned once or anew by the same rule; and undo it."""
        operation = one_statement(make) if isinstance(make, Statement) else make()
        statement = next(steps(operation, translate, DatabaseClock()))
        cursor = ClientCursor(self.connection)
        with self.undone():
            if self.dialect.statements[statement.name].custom_plan:
                cursor.execute((EXPLAIN + self.dialect.pyformat[statement.name]).encode(), statement.params)
            else:
                execute, arguments = self.prepare(statement)
                cursor.execute((EXPLAIN + execute).encode(), arguments)
            row = cursor.fetchone()
            assert row is not None
            return Plan(row[0][0]["Plan"])

    def prepare(self, statement: Statement) -> tuple[str, list[Any]]:
        """Give the server the statement once, as the driver does; EXPLAIN with parameters would plan it anew."""
        text = self.dialect.fill(self.dialect.statements[statement.name].text)
        order = list(dict.fromkeys(PARAMETER.findall(text)))
        if statement.name not in self._prepared:
            numbered = PARAMETER.sub(lambda found: f"${order.index(found[1]) + 1}", text)
            self.execute(f"PREPARE {statement.name} AS {numbered}")
            self._prepared.add(statement.name)
        places = f"({', '.join(['%s'] * len(order))})" if order else ""
        return f"EXECUTE {statement.name}{places}", [statement.params[name] for name in order]

    def analyze(self) -> None:
        self.execute("ANALYZE tasks, tasklib_claims, tasklib_workers, tasklib_controls")

    def vacuum(self) -> None:
        # The index entries of the rows that other measurements undid go too, however few they are.
        self.execute("VACUUM (INDEX_CLEANUP ON) tasks")

    def forget_statistics(self) -> None:
        """Leave the planner where it is after a table was made and before anybody looked into it."""
        self.execute("DELETE FROM pg_statistic WHERE starelid = 'tasks'::regclass")
        self._set_size("-1", "0")

    def take_statistics(self, other: PostgresTable) -> None:
        """Let the planner believe about this table what is true of the other."""
        self.forget_statistics()
        attributes = "SELECT attname FROM pg_attribute WHERE attrelid = 'pg_statistic'::regclass AND attnum > 1"
        columns = [name for (name,) in self.execute(attributes)]
        listed = ", ".join(columns)
        self.execute(
            f"INSERT INTO pg_statistic (starelid, {listed}) SELECT 'tasks'::regclass, {listed} FROM pg_statistic"
            f" WHERE starelid = '{other.schema}.tasks'::regclass"
        )
        size = f"(SELECT {{}} FROM pg_class WHERE oid = '{other.schema}.tasks'::regclass)"
        self._set_size(size.format("reltuples"), size.format("relpages"))

    def _set_size(self, tuples: str, pages: str) -> None:
        # Also tells every session that its plans for this table are out of date.
        self.execute(
            f"UPDATE pg_class SET reltuples = {tuples}, relpages = {pages} WHERE oid = 'tasks'::regclass"
            " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'tasks'::regclass)"
        )

    def close(self) -> None:
        self.connection.close()
