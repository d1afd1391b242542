"""The demo's own HTTP service with the dashboard, in the same process and for as long as the demo runs."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import webbrowser
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from tasklib.cli.commands.programs.serve import listen
from tasklib.cli.exit_codes import CommandFailed

if TYPE_CHECKING:
    import socket

    from tasklib.queue import TaskQueue

HOST = "127.0.0.1"
PORT = 8000
GRACE_SECONDS = 1


@asynccontextmanager
async def serve_dashboard(queue: TaskQueue, port: int | None) -> AsyncGenerator[str | None, None]:
    """Serve inside the block; gives the address, or None if the service's packages are not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        yield None
        return
    from tasklib.http.server import Server

    class Quiet(Server):
        """Leaves the signals to the demo."""

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    listening = _listen(port)
    server = Quiet(queue.asgi(auth="local"), grace_seconds=GRACE_SECONDS)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://{HOST}:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        await serving


def open_browser(address: str) -> None:
    """Open the address, if there is a screen to open it on."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def _listen(port: int | None) -> socket.socket:
    if port is not None:
        return listen(HOST, port)
    try:
        return listen(HOST, PORT)
    except CommandFailed:
        return listen(HOST, 0)  # the port is in use, perhaps by another demo
