"""The service as a client meets it: requests in, status and JSON out, over a queue whose clock the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures.queues import Face, open_queue


class Client:
    """Sends requests to an app on the queue's own event loop, as if everything blocked."""

    def __init__(self, queue: Face, app: Any, base_url: str = "http://localhost", **headers: str) -> None:
        self.app = app
        self._queue = queue
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer; one that is a problem has the shape of a problem."""
        response = self._queue.run_coroutine(self._client.request(method, path, **options))
        if response.status_code >= 400:
            check_problem(response)
        return response

    async def asend(self, path: str, body: Any) -> httpx.Response:
        """POST from within a coroutine of the test."""
        return await self._client.post(path, json=body)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", path, **({} if body is None else {"json": body}) | options)

    def put(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.request("PUT", path, json=body, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def create(self, type: str = "job", payload: Any = None, **options: Any) -> dict[str, Any]:
        """A task made over HTTP."""
        response = self.post("/api/tasks", {"type": type, "payload": payload or {}, "options": options})
        assert response.status_code == 201, response.text
        created: dict[str, Any] = response.json()
        return created

    def close(self) -> None:
        self._queue.run_coroutine(self._client.aclose())


def check_problem(response: httpx.Response) -> None:
    """One shape for every error, and no trace of the program behind it."""
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert {"type", "title", "status", "detail"} <= set(body) <= {"type", "title", "status", "detail", "field"}
    assert body["status"] == response.status_code
    assert "Traceback" not in response.text


@pytest.fixture
def queue(database_url: str) -> Iterator[Face]:
    with open_queue(database_url, "awaiting") as face:
        yield face


@pytest.fixture
def http(queue: Face) -> Iterator[Client]:
    """A client of an app that checks nobody."""
    client = Client(queue, queue.plain.asgi(auth=None))
    yield client
    client.close()
