"""Probes over HTTP: `/livez` answers while the supervisor runs, `/readyz` while its processes work.

`/metrics` says what they have done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from tasklib.core.time.timing import Timing
from tasklib.worker.supervisor.exposition import MISSING

REQUEST_SECONDS = 5.0
REQUEST_BYTES = 8192

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Probed(Protocol):
    """What the probes ask: the supervisor."""

    def status(self) -> dict[str, Any]:
        """The state of each worker process, and under `ready` whether all of them work."""
        ...

    def metrics(self) -> bytes:
        """The metrics of the worker processes, in Prometheus' text format."""
        ...


@asynccontextmanager
async def serve_probe(host: str, port: int | None, probed: Probed, timing: Timing) -> AsyncGenerator[None]:
    """Answer probes while the block runs; without a port there are none."""
    if port is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with timing.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(request.split(b"\r\n")[0].decode("latin-1"), probed))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES)
    try:
        yield
    finally:
        server.close()


def _response(request: str, probed: Probed) -> bytes:
    method, _, rest = request.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if path not in ("/livez", "/readyz", "/metrics"):
        return _answer(method, "404 Not Found", {"error": "there are /livez, /readyz and /metrics"})
    if method not in ("GET", "HEAD"):
        return _answer(method, "405 Method Not Allowed", {"error": "probes are asked with GET"})
    if path == "/metrics":
        try:
            return _answer(method, "200 OK", probed.metrics(), TEXT)
        except ModuleNotFoundError:
            return _answer(method, "501 Not Implemented", {"error": MISSING})
    body = probed.status()
    line = "200 OK" if path == "/livez" or body["ready"] else "503 Service Unavailable"
    return _answer(method, line, body)


def _answer(method: str, line: str, body: dict[str, Any] | bytes, kind: str = "application/json") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else text)
