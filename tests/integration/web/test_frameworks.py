"""Submitting in the request's transaction, and the other frameworks: Starlette, Litestar, Flask."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import flask
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from litestar import Litestar, post
from litestar.params import FromPath
from litestar.testing import TestClient as LitestarClient
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tasklib import ConfigurationError, TaskQueue, TransactionSubmitter
from tasklib.contrib.flask import init_app
from tasklib.contrib.litestar import mount
from tests.fixtures.backends import libpq_url


@pytest.fixture
def queue(newest_postgres_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(newest_postgres_url) as queue:
        queue.migrate()
        yield queue


@pytest.mark.parametrize("scope", ["function", "request"])
@pytest.mark.parametrize("given", ["function", "mark", "annotated"])
def test_a_task_is_stored_with_the_request_or_not_at_all(
    queue: TaskQueue, newest_postgres_url: str, scope: Any, given: str
) -> None:
    engine = create_engine(libpq_url(newest_postgres_url).replace("postgresql", "postgresql+psycopg"))
    sessions: list[Session] = []

    def get_session() -> Iterator[Session]:
        with Session(engine) as session, session.begin():
            sessions.append(session)
            yield session

    @queue.task
    def greet(name: str) -> None: ...

    app = FastAPI()
    mark = Depends(get_session, scope=scope)
    given_as: Any = {"function": get_session, "mark": mark, "annotated": Annotated[Session, mark]}[given]
    if given == "function" and scope == "function":
        given_as = mark

    @app.post("/{name}")
    def add(
        name: str,
        session: Annotated[Session, mark],
        tasks: Annotated[TransactionSubmitter, Depends(queue.submitter(given_as))],
    ) -> None:
        assert tasks.connection is session
        tasks.submit(greet, name)
        assert queue.count() == 0
        if name == "eve":
            raise RuntimeError("no")

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/eve").status_code == 500
        assert queue.count() == 0
        assert client.post("/ada").status_code == 200
    (task,) = queue.list()
    assert task.kwargs == {"name": "ada"}
    assert len(sessions) == 2  # one for each request
    engine.dispose()


def test_an_asynchronous_session_too(queue: TaskQueue, newest_postgres_url: str) -> None:
    url = libpq_url(newest_postgres_url).replace("postgresql", "postgresql+psycopg")

    async def get_session() -> AsyncIterator[AsyncSession]:
        engine = create_async_engine(url)
        try:
            async with AsyncSession(engine) as session, session.begin():
                yield session
        finally:
            await engine.dispose()

    @queue.task
    async def greet(name: str) -> None: ...

    app = FastAPI()

    @app.post("/{name}")
    async def add(name: str, tasks: Annotated[TransactionSubmitter, Depends(queue.submitter(get_session))]) -> None:
        await tasks.asubmit(greet, name=name)
        if name == "eve":
            raise RuntimeError("no")

    with TestClient(app, raise_server_exceptions=False) as client:
        client.post("/eve")
        client.post("/ada")
    (task,) = queue.list()
    assert task.kwargs == {"name": "ada"}


def test_what_gives_no_session_is_refused(queue: TaskQueue) -> None:
    with pytest.raises(ConfigurationError, match=r"takes what gives the session.* got 7"):
        queue.submitter(7)


def test_litestar_runs_the_worker_and_mounts_the_service(sqlite_url: str) -> None:
    queue = TaskQueue(sqlite_url)

    @queue.task
    async def double(number: int) -> int:
        return 2 * number

    @post("/{number:int}")
    async def submit(number: FromPath[int]) -> str:
        return str(await double.asubmit(number))

    service = mount("/queue", queue.asgi(auth=lambda request: "viewer"))
    app = Litestar([submit, service], lifespan=[queue.lifespan(concurrency=2)])
    with LitestarClient(app) as client:
        task_id = client.post("/21").text
        assert queue.wait(task_id, timeout=180).result == {"value": 42}
        assert client.get(f"/queue/api/tasks/{task_id}").json()["result"] == 42
        assert client.get("/queue").status_code == 200  # the dashboard
        assert client.delete(f"/queue/api/tasks/{task_id}").status_code == 403  # a viewer
    assert queue.workers() == []
    queue.close()


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_flask_tasks_have_the_context_of_their_application(sqlite_url: str, kind: str) -> None:
    app = flask.Flask("shop")
    app.config["GREETING"] = "hello"
    torn_down: list[BaseException | None] = []
    app.teardown_appcontext(torn_down.append)
    queue = TaskQueue(sqlite_url)
    init_app(app, queue)
    init_app(app, queue)  # an application factory may be called twice

    def body(name: str) -> str:
        if name == "eve":
            raise ValueError("no")
        return f"{flask.current_app.config['GREETING']} {name}"

    if kind == "def":

        @queue.task(max_retries=0)
        def greet(name: str) -> str:
            return body(name)

    else:

        @queue.task(max_retries=0)
        async def greet(name: str) -> str:
            return body(name)

    @app.post("/<name>")
    def submit(name: str) -> str:
        return str(greet.submit(name))

    good, bad = (app.test_client().post(f"/{name}").text for name in ("ada", "eve"))
    torn_down.clear()
    queue.process_batch()

    assert queue.wait(good).result == {"value": "hello ada"}
    assert queue.wait(bad).state == "failed"
    assert sorted(map(repr, torn_down)) == ["None", "ValueError('no')"]
    with TaskQueue("sqlite:///:memory:") as other, pytest.raises(ConfigurationError, match="has another queue"):
        init_app(app, other)
    queue.close()
