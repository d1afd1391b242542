"""A role that was given what its duty needs can do that, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psycopg
import pytest

from tasklib import AsyncTaskContext, Config, PermissionDenied, TaskLibError, TaskQueue, UniqueConflict, WaitTimeout
from tasklib.cli.main import main
from tasklib.storage.operations.access import tokens
from tasklib.storage.postgres.grants import RIGHTS, Duty
from tasklib.worker.upkeep import retention
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.backends("postgres-newest"), pytest.mark.new_schema]
DENIED = {
    "producer": [
        "SELECT kwargs FROM tasks", "UPDATE tasks SET priority = 1", "DELETE FROM tasks",
        "SELECT * FROM tasklib_tokens",
        "SELECT * FROM tasklib_audit", "UPDATE tasklib_controls SET paused_at = now()", "SELECT result FROM tasks",
        "INSERT INTO tasks (name, seq) OVERRIDING SYSTEM VALUE VALUES ('x', 4611686018427387904)",
        "INSERT INTO tasks (name, attempts) VALUES ('x', 5)",
    ],
    "worker": [
        "SELECT * FROM tasklib_tokens", "SELECT * FROM tasklib_audit", "TRUNCATE tasks", "DROP TABLE tasks",
        "DELETE FROM tasklib_controls", "SELECT * FROM tasklib_idempotency",
    ],
    "viewer": [
        "INSERT INTO tasks (name) VALUES ('x')", "UPDATE tasks SET priority = 1", "DELETE FROM tasks",
        "SELECT * FROM tasklib_tokens", "SELECT * FROM tasklib_audit", "DELETE FROM tasklib_schedules",
    ],
    "admin": [
        "UPDATE tasklib_audit SET actor = 'nobody'", "DELETE FROM tasklib_audit", "DROP TABLE tasks", "TRUNCATE tasks",
        "CREATE TABLE mine (x int)", "DELETE FROM tasklib_migrations",
    ],
}  # fmt: skip


@pytest.fixture
def role(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    """A new role without any rights."""
    name = f"r_{uuid4().hex[:12]}"
    with psycopg.connect(libpq_url(database_url), autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        owner.execute(f"DROP OWNED BY {name}")
        owner.execute(f"DROP ROLE {name}")


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{role}@{host}").geturl()


def queue_of(database_url: str, role: str, duty: str) -> TaskQueue:
    assert main(["grants", duty, role, "--apply", "--database-url", database_url]) == 0
    return TaskQueue(as_role(database_url, role))


@pytest.mark.parametrize("duty", DENIED)
def test_what_each_cannot_do(database_url: str, role: str, duty: str) -> None:
    queue_of(database_url, role, duty).close()
    with psycopg.connect(libpq_url(as_role(database_url, role)), autocommit=True) as connection:
        for statement in DENIED[duty]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_every_table_is_somebodys(database_url: str) -> None:
    with TaskQueue(database_url) as queue:
        queue.count()
    with psycopg.connect(libpq_url(database_url)) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema").fetchall()
    assert {name for (name,) in rows} == set(RIGHTS[Duty.ADMIN])


def test_a_producer_submits_in_every_way_the_docs_know(
    database_url: str, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with queue_of(database_url, role, "producer") as queue:
        queue.enqueue("job", {"n": 1}, tags={"a": 1}, priority=3, delay_seconds=60)
        first = queue.enqueue("job", unique_key="k")
        assert queue.enqueue("job", unique_key="k") == first
        with pytest.raises(UniqueConflict):
            queue.enqueue("job", unique_key="k", on_conflict="raise")
        for n in range(3):
            queue.enqueue("job", {"n": n}, concurrency_key="tenant")

        @queue.task
        def many(n: int) -> None: ...

        assert len(many.submit_many({"n": n} for n in range(3))) == 3
        with psycopg.connect(libpq_url(as_role(database_url, role))) as connection:
            queue.enqueue("job", concurrency_key="tenant", connection=connection)
        with pytest.raises(PermissionDenied, match="on_conflict='return'"):
            queue.enqueue("job", unique_key="k", on_conflict="replace")
        flow = queue.flow("nightly")
        flow.add(many.bind(2), after=[flow.add(many.bind(1))])
        with pytest.raises(PermissionDenied, match="submit it over HTTP"):
            flow.submit()
        with pytest.raises(PermissionDenied):
            queue.get(first)
    assert main(["submit", "job", "n=9", "--database-url", as_role(database_url, role)]) == 0
    assert main(["migrate", "--check", "--database-url", as_role(database_url, role)]) == 0
    assert "Submitted job" in capsys.readouterr().out
    with TaskQueue(database_url) as owner:
        assert len(owner.list(limit=50)) == 10
        owner.register_handler("job", lambda payload: None)
        assert owner.process_batch() >= 2, "the one with a unique key, and one of the key: a hint says where to look"


def test_the_trigger_that_runs_as_the_owner_belongs_to_the_queue_alone(database_url: str, role: str) -> None:
    queue_of(database_url, role, "producer").close()
    with psycopg.connect(libpq_url(database_url), autocommit=True) as owner:
        settings = owner.execute(
            "SELECT proconfig FROM pg_proc WHERE prosecdef AND pronamespace = current_schema()::regnamespace"
        ).fetchall()
        assert settings == [(["search_path=pg_catalog, pg_temp"],)] * len(settings)
        assert settings
    with psycopg.connect(libpq_url(as_role(database_url, role)), autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE mine (concurrency_key text, slot_key text, name text, priority int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION tasklib_hint()")


def test_a_worker_runs_tasks_and_their_schedules(database_url: str, role: str) -> None:
    with TaskQueue(database_url) as owner:
        owner.enqueue("job")
        owner.enqueue("fails")
    with queue_of(database_url, role, "worker") as queue:

        @queue.task(name="job")
        def job() -> None: ...

        @queue.task(name="fails", max_retries=0)
        def fails() -> None:
            raise ValueError

        assert queue.process_batch() == 2
        assert (queue.stats().completed, queue.stats().failed) == (1, 1)
        queue.add_schedule("s", task="job", every=60)
        queue.fire_schedules()
        queue.pause("job")
        queue.set_rate_limit(5, "job")


async def test_a_worker_runs_for_real_and_removes_what_is_old(
    database_url: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures, keys, limits, progress, log, schedules, own submissions and retention."""
    monkeypatch.setattr(retention, "EVERY_SECONDS", 0.05)
    with TaskQueue(database_url) as owner:
        owner.set_rate_limit(1000, "job")
        owner.set_key_limit(1, "tenant")
        kept = owner.enqueue("fails")
    assert main(["grants", "worker", role, "--apply", "--database-url", database_url]) == 0
    async with TaskQueue(Config(as_role(database_url, role), retention="completed=0s")) as queue:

        @queue.task(name="job")
        async def job(ctx: AsyncTaskContext) -> None:
            ctx.log("at work")
            ctx.progress(0.5, "half")
            await ctx.spend("calls")
            await queue.aenqueue("job-child", concurrency_key="tenant")

        await queue.aset_budget("calls", per_second=1000)

        @queue.task(name="job-child")
        def child() -> None: ...

        @queue.task(name="fails", max_retries=0)
        def fails() -> None:
            raise ValueError

        for _ in range(3):
            await queue.aenqueue("job", concurrency_key="tenant")
        await queue.aadd_schedule("s", task="job", every=0.2)
        worker = asyncio.ensure_future(queue.arun(signals=False))
        with TaskQueue(database_url) as owner:

            def is_done() -> bool:
                schedule = owner.get_schedule("s")
                left = {(task.id, str(task.state)) for task in owner.list()}
                return bool(schedule and schedule.last_run_at) and left >= {(kept, "failed")}

            await asyncio.to_thread(eventually, is_done, 60)
            await queue.aremove_schedule("s")
            await asyncio.to_thread(eventually, lambda: [task.id for task in owner.list()] == [kept], 60)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


def test_a_worker_runs_workflows_and_removes_what_they_left(database_url: str, role: str) -> None:
    """Steps, waits, events, questions, children, flows, budgets, undos, a restart; and clean-up."""
    with queue_of(database_url, role, "worker") as queue:

        @queue.task
        def part(n: int) -> int:
            return n

        @queue.task(max_retries=0)
        async def saga(ctx: AsyncTaskContext, again: bool) -> None:
            await ctx.step(part, 1)
            if again:
                raise saga.restart(again=False)
            await ctx.options(transactional=True).step(part, 2)
            await ctx.options(undo=part.bind(3)).step(part, 3)
            await ctx.spend("calls")
            await ctx.map(part, [{"n": 4}, {"n": 5}])
            flow = queue.flow("inner")
            flow.add(part.bind(flow.add(part.bind(6)).result))
            await ctx.run(flow)
            assert await ctx.wait("told", int) == 7
            assert await ctx.wait("asked", bool, ask="Really?")
            raise ValueError

        queue.set_budget("calls", per_minute=10)
        task_id = saga.submit(again=True)
        queue.emit("told", 7)
        while queue.process_batch():
            pass
        queue.answer(task_id, "asked", value=True)
        while queue.process_batch():
            pass
        assert (queue.stats().failed, queue.stats().completed) == (1, 5)
        while queue.cleanup(older_than=0, state=["failed", "completed"]):
            pass
        assert queue.count() == 0


def test_a_viewer_looks_at_everything(database_url: str, role: str, capsys: pytest.CaptureFixture[str]) -> None:
    with TaskQueue(database_url) as owner:
        task_id = owner.enqueue("job", {"n": 1}, concurrency_key="tenant")
        owner.add_schedule("s", task="job", every=60)
    with queue_of(database_url, role, "viewer") as queue:
        assert (queue.stats().total, queue.count(), list(queue.workers()), queue.pauses()) == (1, 1, [], [])
        assert [task.id for task in queue.list(search="n")] == [task_id]
        assert queue.explain(task_id).reasons
        assert (queue.errors(), list(queue.limits()), list(queue.key_limits())) == ([], [], [])
        assert [each.name for each in queue.schedules()] == ["s"]
        with pytest.raises(PermissionDenied):
            queue.pause()
        with pytest.raises(WaitTimeout):
            queue.wait(task_id, timeout=0)
    where = ["--database-url", as_role(database_url, role)]
    about = [f"{command} {task_id}" for command in ("show", "explain", "steps", "tree")]
    for command in ("list", "stats", "workers", "schedules", "errors", "types", "limits", "scale", *about):
        assert main([*command.split(), *where]) == 0, (command, capsys.readouterr())


def test_an_admin_acts_and_makes_tokens(database_url: str, role: str) -> None:
    with queue_of(database_url, role, "admin") as queue:
        task_id = queue.enqueue("job", concurrency_key="tenant", unique_key="k")
        assert queue.enqueue("job", {"n": 2}, unique_key="k", on_conflict="replace") == task_id
        queue.pause()
        queue.resume()
        queue.set_rate_limit(5, "job")
        queue.set_key_limit(2, "tenant")
        queue.set_budget("calls", per_minute=5)
        queue.set_budget("calls", per_minute=None)
        queue.cancel(task_id)
        queue.retry(task_id)
        queue.cancel(task_id)
        queue.delete(task_id)
        queue.add_schedule("s", task="job", every=60)
        queue.run_schedule("s")
        queue.remove_schedule("s")
        made: Any = queue.database.run(lambda: tokens.create_token("ada", tokens.Role.VIEWER))
        assert made.secret
    asyncio.run(serve(as_role(database_url, role)))
    where = ["--database-url", as_role(database_url, role)]
    assert main(["cleanup", "--older-than", "1d", *where]) == 0


def test_a_service_that_may_not_read_tokens_is_not_ready(database_url: str, role: str) -> None:
    queue_of(database_url, role, "worker").close()

    async def ask() -> list[int]:
        async with TaskQueue(as_role(database_url, role)) as queue:
            transport = httpx.ASGITransport(queue.asgi(auth="tokens"))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]

    assert asyncio.run(ask()) == [200, 503]


async def serve(url: str) -> None:
    async with TaskQueue(url) as queue:
        transport = httpx.ASGITransport(queue.asgi(auth=None))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            created = await client.post("/api/tasks", json={"type": "job", "options": {"concurrencyKey": "tenant"}})
            assert created.status_code == 201, created.text
            requests: list[tuple[str, dict[str, Any]]] = [
                ("/api/flows", {"name": "f", "nodes": [{"ref": "a", "type": "job"}]}),
                ("/api/events", {"name": "told", "payload": 1}),
                (f"/api/tasks/{created.json()['id']}/events", {"name": "told", "payload": 1}),
                ("/api/objectives", {"type": "job", "withinSeconds": 5, "target": 99}),
                ("/api/workers", {"workerId": "w", "types": ["job"]}),
            ]
            for path, body in requests:
                done = await client.post(path, json=body)
                assert done.status_code in (200, 201), done.text
            for path in ("findings", "changes", "objectives", "questions", "metrics/lanes", "workers", "scale"):
                assert (await client.get(f"/api/{path}")).status_code == 200, path
            audit = (await client.get("/api/audit")).json()
            served = [each["action"] for each in audit["entries"] if each["role"] != "local"]
            assert (served[-1], len(served)) == ("create_task", 1 + len(requests))
            assert len(audit["entries"]) == len(served) + 7, "and what the program paused, resumed, limited and removed"


def test_without_apply_they_are_only_printed(database_url: str, role: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grants", "viewer", role, "--database-url", database_url]) == 0
    assert "GRANT SELECT ON" in capsys.readouterr().out
    with TaskQueue(as_role(database_url, role)) as queue, pytest.raises(TaskLibError):
        queue.list()
    assert main(["grants", "king", role, "--database-url", database_url]) == 2
