"""The HTTP service: serve."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exits import CommandFailed, Exit
from tasklib.cli.logs import log_to_stderr
from tasklib.cli.options import LogLevel

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tasklib.queue import TaskQueue

GROUP = "Service"
GRACE_SECONDS = 10

app = typer.Typer()


@command(
    app,
    "serve",
    group=GROUP,
    creates=True,
    examples="""
    tasklib serve
    tasklib serve --host 0.0.0.0 --port 80
    tasklib serve --allow-host tasks.example.com
    """,
)
def serve(
    cli: Cli,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port; 0 takes a free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name to answer for, as behind a proxy; may be repeated.  [default: this machine's]",
            show_default=False,
        ),
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Serve the HTTP interface until told to stop.

    Without tokens it listens on this machine only, and is open to whoever is on it. Once a token exists (tasklib token
    create), every request needs one. Other addresses need tokens.
    """
    import asyncio

    log_to_stderr(log_level)
    queue, local = cli.manage.queue, is_loopback(host)
    if not local and not has_tokens(queue):
        raise CommandFailed(
            f"listening on {host} lets other machines in, and there is no token to tell them apart; "
            "make one first: tasklib token create me --role admin",
            Exit.USAGE,
        )
    hosts = allow_host and [*allow_host, *(("localhost", "127.0.0.1", "::1") if local else ())]
    listening = listen(host, port)
    service = queue.asgi(auth="local" if local else "tokens", hosts=hosts)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

    def say_start() -> None:
        cli.out.answer({"url": url}, lambda: cli.out.note(f"serving on {url}; stop with Ctrl-C"))
        sys.stdout.flush()  # Whoever started it may wait for the address.

    asyncio.run(_serve(queue, service, listening, log_level, say_start))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def has_tokens(queue: TaskQueue) -> bool:
    """Whether a token was ever made."""
    from tasklib.storage.operations import tokens

    return queue.database.run(tokens.any_token)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; an address that cannot be had is an error that says why."""
    import socket

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address, family=family, backlog=2048)
        # Inherited by every connection.  An answer is two writes, and without this the second waits for the client's
        # delayed acknowledgement of the first, 40 ms; asyncio sets it only on sockets that say they are TCP.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise CommandFailed(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


async def _serve(
    queue: TaskQueue, service: Any, listening: socket.socket, log_level: str, say_start: Callable[[], None]
) -> None:
    from tasklib.http.server import Server

    class Announced(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            say_start()  # Only now does a signal stop it in order.

    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn stops on these and then raises them again; having stopped as asked is a success.
        signal.signal(number, _ignore)
    server = Announced(service, grace_seconds=GRACE_SECONDS, log_level=log_level.lower())
    try:
        await server.serve(sockets=[listening])
    finally:
        await queue.aclose()


def _ignore(number: int, frame: Any) -> None:
    """Do nothing."""
