"""Liveness and readiness over HTTP: `/livez` answers while the supervisor runs, `/readyz` while its processes work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tasklib.core.timing import Timing

REQUEST_SECONDS = 5.0
REQUEST_BYTES = 8192

Status = Callable[[], dict[str, Any]]


@asynccontextmanager
async def serve_probe(host: str, port: int | None, status: Status, timing: Timing) -> AsyncGenerator[None]:
    """Answer probes while the block runs; without a port there are none."""
    if port is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with timing.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(request.split(b"\r\n")[0].decode("latin-1"), status))
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


def _response(request: str, status: Status) -> bytes:
    method, _, rest = request.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if path not in ("/livez", "/readyz"):
        line, body = "404 Not Found", {"error": "there are /livez and /readyz"}
    elif method not in ("GET", "HEAD"):
        line, body = "405 Method Not Allowed", {"error": "probes are asked with GET"}
    else:
        body = status()
        line = "200 OK" if path == "/livez" or body["ready"] else "503 Service Unavailable"
    text = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else text)
