"""Checks of every request: its host, the site it comes from and its size; and the headers of every answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.http.errors import Refused, problem
from tasklib.http.parts import parts_of

MOST_PARAMETERS: Final = 1_100
"""Parameters of one query: a list of a thousand, and a few more.  To check each takes longer the more there are."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ENCODED_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class RequestGuard:
    """Refuses requests before any route sees them, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, hosts: Iterable[str] | None = None) -> None:
        self.app = app
        self._max_body_bytes = max_body_bytes
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an HTTP request on, or answer it with a problem."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [
                    _on_this_host(each, headers.get("host", ""))
                    for each in message.get("headers", ())
                    if each[0].lower() != b"x-request-id"
                ]
                names = {name.lower() for name, _ in given}
                added = [each for each in _ENCODED_HEADERS if each[0] not in names]
                message["headers"] = [*given, *added, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            self._check(scope, headers)
        except Refused as refused:
            request = Request(scope)
            await parts_of(request).refusals.record(request, refused.status_code, refused.kind)
            answer = problem(refused.status_code, refused.kind, refused.detail)
            await answer(scope, receive, send_guarded)
            return
        await self.app(scope, self._limited(receive), send_guarded)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if len(headers.getlist("host")) > 1:
            raise Refused(400, "invalid-request", "a request names one host; this one names several")
        if self._hosts is not None and _hostname(host) not in self._hosts:
            raise Refused(
                403, "host-refused", f"this service does not answer for the host {host!r}; allow it with --allow-host"
            )
        if scope["method"] not in SAFE_METHODS and not _same_origin(headers, host):
            raise Refused(403, "origin-refused", "requests from other sites may not change anything")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > self._max_body_bytes):
            raise self._too_large()
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            raise Refused(400, "invalid-request", f"a query may have {MOST_PARAMETERS:,} parameters; split the request")

    def _limited(self, receive: Receive) -> Receive:
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise self._too_large()
            return message

        return receive_limited

    def _too_large(self) -> Refused:
        detail = f"a request may have {self._max_body_bytes} bytes; keep large data elsewhere and send where it is"
        return Refused(413, "too-large", detail)


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether the request comes from our own pages or from no page; only browsers send these headers."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # such as a bracket that is never closed; no browser sends it
        return False


def _on_this_host(header: tuple[bytes, bytes], host: str) -> tuple[bytes, bytes]:
    """The header; a redirect to the host of the request becomes one to the path alone.

    The client chooses the host name, and a proxy may not say that it uses https: neither may redirect a client, with
    its token, to another place.
    """
    name, value = header
    # Our own begin with a slash and a letter, so they name no host.
    if name.lower() != b"location" or (value[:1] == b"/" and value[1:2].isalnum()):
        return header
    place = urlsplit(value.decode("latin-1"))
    if not place.netloc or place.netloc.lower() != host.lower():
        return header
    path = "/" + place.path.lstrip("/\\")
    return name, (f"{path}?{place.query}" if place.query else path).encode("latin-1")


def _hostname(host: str) -> str:
    """The host without its port."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::\d+)?", host)
    return "" if found is None else (found[1] or found[2]).lower()


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if given and re.fullmatch(r"[\w.:-]{1,100}", given, re.ASCII) else str(uuid4())
