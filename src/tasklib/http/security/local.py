"""Whether a request comes from this machine itself: only such a request may come without a token."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""The host names of a service for this machine only."""
PROXY_HEADERS: Final = frozenset(
    {
        *("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-host"),
        *("cf-connecting-ip", "true-client-ip", "fly-client-ip", "x-envoy-external-address"),
    }
)
PROXY_PREFIX: Final = "x-forwarded"


@lru_cache(maxsize=1000)
def is_loopback(host: str) -> bool:
    """Whether the address or the name is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def foreign_hosts(hosts: Iterable[str]) -> list[str]:
    """The names that are not this machine's own."""
    return [host for host in hosts if not is_loopback(host)]


def sign_of_proxy(request: Request) -> str | None:
    """The sign that a proxy passed the request on; None if there is none.

    By default a proxy passes on neither the host name nor the caller's address, but nginx then uses HTTP/1.0, which
    hardly any program on this machine does.
    """
    for name in request.headers:
        if name in PROXY_HEADERS or name.startswith(PROXY_PREFIX):
            return f"the header {name.title()}"
    return "HTTP/1.0" if request.scope.get("http_version") == "1.0" else None


def is_from_this_machine(request: Request) -> bool:
    """Whether a program on this machine has sent the request to us directly."""
    peer = request.client
    return peer is not None and is_loopback(peer.host) and sign_of_proxy(request) is None
