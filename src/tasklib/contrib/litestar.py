"""Litestar: the HTTP service and the dashboard of a queue under a path of the application.

from tasklib.contrib.litestar import mount

app = Litestar([mount("/queue", queue.asgi(auth=role_of))], lifespan=[queue.lifespan(concurrency=4)])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from tasklib.contrib.late import load


def mount(path: str, service: Callable[..., Awaitable[None]]) -> Any:
    """A route handler for all that is below the path.

    Litestar gives a mounted application the rest of the path only, with a slash at its end; the service needs the path
    as it was asked for, and which part of it is above the service.

    Examples:
        >>> from litestar import Litestar
        >>> from tasklib.contrib.litestar import mount
        >>> service = queue.asgi(auth=lambda request: "viewer")
        >>> app = Litestar([mount("/queue", service)], lifespan=[queue.lifespan(concurrency=4)])
    """
    prefix = "/" + path.strip("/")

    async def mounted(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        root = scope.get("root_path", "") + prefix
        asked = unquote(scope["raw_path"].partition(b"?")[0].decode("latin-1"))
        await service({**scope, "root_path": root, "path": asked}, receive, send)

    # Litestar reads these annotations.
    types = load("litestar.types", "litestar")
    mounted.__annotations__ = {"scope": types.Scope, "receive": types.Receive, "send": types.Send, "return": None}
    return load("litestar", "litestar").asgi(prefix, is_mount=True, copy_scope=True)(mounted)
