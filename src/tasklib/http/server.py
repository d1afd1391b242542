"""The server for our own app: when it stops, it ends event streams and waiting claims."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import uvicorn
from fastapi import FastAPI

from tasklib.http.parts import parts_of_app


class Server(uvicorn.Server):
    """uvicorn with the settings of our service.

    uvicorn waits until every answer has ended, and an event stream never does, so `shutdown` ends it. The address of a
    caller is that of the connection, or the one that a trusted proxy gives.
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
            # Otherwise any program on this machine could forge the address of a caller.
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            timeout_graceful_shutdown=grace_seconds,
        )
        super().__init__(settings)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and waiting claims, then everything else."""
        parts_of_app(self._app).stopping.set()
        await super().shutdown(sockets)
