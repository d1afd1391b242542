"""The server for an app of our own: it lets go of whoever listens or waits when it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import uvicorn
from fastapi import FastAPI

from tasklib.http.parts import parts_of_app


class Server(uvicorn.Server):
    """uvicorn with what every such service has in common.

    uvicorn waits until each answer has ended, and a stream of events never does: so it is ended from here. From where a
    request comes is what the connection says, or a proxy that is trusted.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        grace_seconds: int,
        log_level: str | None = None,
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        settings = uvicorn.Config(
            app,
            log_config=None,
            log_level=log_level,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            # Else anybody on this machine could say from where a request comes.
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            timeout_graceful_shutdown=grace_seconds,
        )
        super().__init__(settings)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what would go on by itself, then everything else in order."""
        parts_of_app(self._app).stopping.set()
        await super().shutdown(sockets)
