"""Whether a request comes from this machine itself: only such a one may be let in without a token."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names under which a service is asked that answers for this machine only."""
PROXY_HEADERS: Final = frozenset(
    {
        *("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-host"),
        *("cf-connecting-ip", "true-client-ip", "fly-client-ip", "x-envoy-external-address"),
    }
)
PROXY_PREFIX: Final = "x-forwarded"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address, or is meant by the name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def foreign_hosts(hosts: Iterable[str]) -> list[str]:
    """Those of the names that do not mean this machine."""
    return [host for host in hosts if not is_loopback(host)]


def sign_of_proxy(request: Request) -> str | None:
    """What tells that the request was passed on by a proxy; None if nothing does.

    A proxy that was told nothing else passes on neither the name asked for nor the caller's address. nginx then speaks
    HTTP/1.0, which hardly anything on this machine does.
    """
    for name in request.headers:
        if name in PROXY_HEADERS or name.startswith(PROXY_PREFIX):
            return f"the header {name.title()}"
    return "HTTP/1.0" if request.scope.get("http_version") == "1.0" else None


def is_from_this_machine(request: Request) -> bool:
    """Whether a program on this machine has sent the request to us directly."""
    peer = request.client
    return peer is not None and is_loopback(peer.host) and sign_of_proxy(request) is None
