"""What tasklib alone is measured by: a fleet of idle workers, and tasks created over HTTP."""

from __future__ import annotations

import asyncio
import logging

from bench.parts import fleet, http_create
from bench.peer import Peer
from bench.place import Places
from bench.server import durable_server, fresh_schema
from bench.workloads import Figures, prepare

FEW_WORKERS, RATE, SECONDS = 10, 100, 10.0


def idle_fleet(places: Places, peer: Peer, count: int) -> Figures:
    """So many workers beside a hundred tasks a second, and what ten of them cost the server."""
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # of the workers that are cancelled at the end
    found: list[dict[str, float]] = []
    for workers in (FEW_WORKERS, count):
        # A server of its own: it has more connections, and logs who waits for a lock.
        with durable_server(places.version, fleet.server_settings(count)) as server:
            fresh_schema(server, fleet.SCHEMA).close()
            measured = fleet.measure(server, server.url, [fleet.SCHEMA], workers, RATE, SECONDS, pooled=False)
            found.append(asyncio.run(measured))
    few, many = found
    return {
        "server_percent": many["cpu"],
        "of_ten_workers": many["cpu"] / few["cpu"],
        "done_per_second": many["done"],
        "claims_per_second": many["claims"],
        "lock_waits": many["waits"],
    }


def http_one(places: Places, peer: Peer, seconds: float) -> Figures:
    """One caller at a time."""
    return _create(places, peer, seconds, callers=1)


def http_many(places: Places, peer: Peer, seconds: float) -> Figures:
    """64 callers at once."""
    return _create(places, peer, seconds, callers=64)


def _create(places: Places, peer: Peer, seconds: float, *, callers: int) -> Figures:
    with places.fresh(peer) as address:
        prepare(peer, address)
        with http_create.serving(address, peer) as port:
            http_create.in_another_process(f"--call={port}", callers, 1.0)  # connected, and its statements ready
            python = http_create.in_another_process(f"--submit={address}", callers, seconds, peer)
            http = http_create.in_another_process(f"--call={port}", callers, seconds)
    return {"per_second": http, "submit_per_second": python, "of_submit": http / python}
