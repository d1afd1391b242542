"""Creating tasks over HTTP against the Python `submit`, with the same number of callers at once, on one server.

    python -m bench.http_create [--callers 16] [--seconds 5]

The callers of the service are raw connections that are kept open, in a process of their own, so that a slow client is
not taken for a slow service.  Each way runs in turn; the ratio is that of the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench.server import durable_server, fresh_schema
from tasklib import TaskQueue

BODY = b'{"type": "webhook.outbound", "payload": {"url": "https://example.com", "method": "POST"}}'
REQUEST = (
    b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
)


def main() -> None:
    """Print the rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--call", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.call is not None:
        print(asyncio.run(call_service(given.call, given.callers, given.seconds)))
        return
    with durable_server(None) as server:
        fresh_schema(server, "bench").close()
        url = f"{server.url}?schema=bench"
        with serving(url) as port:
            for _ in range(given.rounds):
                python = submit_blocking(url, given.callers, given.seconds)
                http = from_another_process(port, given.callers, given.seconds)
                print(f"submit {python:8.0f}/s   HTTP {http:8.0f}/s   ratio {http / python:.2f}", flush=True)


def submit_blocking(url: str, callers: int, seconds: float) -> float:
    """Tasks a second by `enqueue` in so many threads."""
    queue, ends = TaskQueue(url), time.monotonic() + seconds
    counts = [0] * callers

    def call(number: int) -> None:
        while time.monotonic() < ends:
            queue.enqueue("webhook.outbound", {"url": "https://example.com", "method": "POST"})
            counts[number] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.close()
    return sum(counts) / seconds


def from_another_process(port: int, callers: int, seconds: float) -> float:
    """Tasks a second over HTTP."""
    command = [
        sys.executable,
        "-m",
        "bench.http_create",
        f"--call={port}",
        f"--callers={callers}",
        f"--seconds={seconds}",
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def call_service(port: int, callers: int, seconds: float) -> float:
    """Requests a second by so many connections, each waiting for its answer before it asks again."""
    ends = time.monotonic() + seconds

    async def call() -> int:
        count = 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < ends:
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            count += 1
        writer.close()
        return count

    return sum(await asyncio.gather(*(call() for _ in range(callers)))) / seconds


@contextmanager
def serving(url: str) -> Iterator[int]:
    """The service on a free port, as users start it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tasklib", "serve", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env=os.environ | {"DATABASE_URL": url})
    try:
        wait_until_ready(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(port: int, tries: int = 200) -> None:
    """Return when the service answers."""
    for _ in range(tries):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


if __name__ == "__main__":
    main()
