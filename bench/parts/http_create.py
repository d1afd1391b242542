"""Creating tasks over HTTP against the Python `submit`, with the same number of callers at once, on one server.

    python -m bench http_create [--callers 16] [--seconds 1] [--rounds 9]

The callers of the service are raw connections that are kept open, in a process of their own, so that a slow client is
not taken for a slow service.  Each way runs in turn; the ratio is that of the same round.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.environment import ROOT, folder, variables
from bench.peer import TASKLIB, Peer
from bench.report import middle
from bench.server import durable_server, fresh_schema
from tasklib import TaskQueue

BODY = b'{"type": "webhook.outbound", "payload": {"url": "https://example.com", "method": "POST"}}'
REQUEST = (
    b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
)
ANSWER = re.compile(rb"HTTP/1.1 201 .*?\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n", re.DOTALL)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--call", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--submit", help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> None:
    """Print the rates and their ratio."""
    if given.call is not None:
        print(call_service(given.call, given.callers, given.seconds))
        return
    if given.submit is not None:
        print(submit_blocking(given.submit, given.callers, given.seconds))
        return
    with durable_server(given.postgres) as server:
        fresh_schema(server, "bench").close()
        url = f"{server.url}?schema=bench"
        with serving(url) as port:
            ratios = []
            for _ in range(given.rounds):
                python = in_another_process(f"--submit={url}", given.callers, given.seconds)
                http = in_another_process(f"--call={port}", given.callers, given.seconds)
                ratios.append(http / python)
                print(f"submit {python:8.0f}/s   HTTP {http:8.0f}/s   ratio {ratios[-1]:.2f}", flush=True)
    print(f"in the middle {middle(ratios):.2f} with {given.callers} at once")


def submit_blocking(url: str, callers: int, seconds: float) -> float:
    """Tasks a second by `enqueue` in so many threads."""
    queue, ends = TaskQueue(url), time.monotonic() + seconds
    counts = [0] * callers

    def call(number: int) -> None:
        while time.monotonic() < ends:
            queue.enqueue("webhook.outbound", {"url": "https://example.com", "method": "POST"})
            counts[number] += 1

    in_threads(call, callers)
    queue.close()
    return sum(counts) / seconds


def in_another_process(what: str, callers: int, seconds: float, peer: Peer = TASKLIB) -> float:
    """Tasks a second over HTTP or by `enqueue`, with the package of the peer's tree."""
    command = [sys.executable, "-m", "bench", "http_create", what, f"--callers={callers}", f"--seconds={seconds}"]
    env = variables(peer)
    return float(subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)


def call_service(port: int, callers: int, seconds: float) -> float:
    """Requests a second by so many connections, each waiting for its answer before it asks again."""
    ends, counts = time.monotonic() + seconds, [0] * callers

    def call(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while time.monotonic() < ends:
                connection.sendall(REQUEST)
                read_answer(connection)
                counts[number] += 1

    in_threads(call, callers)
    return sum(counts) / seconds


def read_answer(connection: socket.socket) -> None:
    """Read one whole answer, which must say that the task was stored."""
    answer = b""
    while (found := ANSWER.match(answer)) is None or len(answer) < found.end() + int(found[1]):
        part = connection.recv(65536)
        assert part, answer
        answer += part


def in_threads(call: Callable[[int], None], callers: int) -> None:
    """Let so many threads call, each with its number, to the end."""
    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def serving(url: str, peer: Peer = TASKLIB) -> Iterator[int]:
    """The service of the peer's tree on a free port, as users start it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tasklib", "serve", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=folder(peer), env=variables(peer) | {"DATABASE_URL": url})
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
