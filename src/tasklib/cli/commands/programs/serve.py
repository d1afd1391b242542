"""The HTTP service: serve."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.logs import log_to_stderr
from tasklib.cli.options.common import LogLevel
from tasklib.cli.options.declare import option
from tasklib.errors import ForeignTable, SchemaMismatch, SchemaTooNew, StorageError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tasklib.queue import TaskQueue

GRACE_SECONDS = 10

app = Commands("Service")


@app.add(creates=True)
def serve(
    cli: Cli,
    host: Annotated[str, option("HOST", "Address to listen on.", show_default=True)] = "127.0.0.1",
    port: Annotated[int, option("PORT", "Port; 0 takes a free one.", min=0, max=65535, show_default=True)] = 8000,
    allow_host: Annotated[
        list[str] | None,
        option("NAME", "A host name to accept, as behind a proxy; may be repeated.  [default: this machine's]"),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, option("ADDRESS", "A proxy whose X-Forwarded-For and -Proto are trusted; may be repeated.")
    ] = None,
    mcp_write: Annotated[
        bool, option(None, "Let agents at /mcp retry, cancel, pause and resume, if their role may.", "--mcp-write")
    ] = False,
    mcp_submit: Annotated[
        list[str] | None, option("PATTERN", "A type that agents at /mcp may submit; may be repeated.")
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Serve the HTTP interface until stopped.

    Without tokens it accepts requests from this machine only. Once a token exists (tasklib token create),
    every request needs one. Other addresses, other names and proxies need tokens first.

    Examples:
        tasklib serve
        tasklib serve --host 0.0.0.0 --port 80
        tasklib serve --allow-host tasks.example.com --trusted-proxy 127.0.0.1
    """
    from tasklib.core.time.event_loop import run

    queue, names = cli.service.queue, allow_host or []
    proxies = [check_address(each) for each in trusted_proxy or ()]
    others = _access_from_elsewhere(host, names, proxies)
    if others is not None and not cli.service.tokens.any_exists():
        raise CommandFailed(
            f"{others}, and there is no token to tell them apart; make one first: tasklib token create me --role admin",
            Exit.USAGE,
        )
    log_to_stderr(log_level)
    listening = listen(host, port)
    service = _application(
        queue,
        auth="local" if others is None else "tokens",
        hosts=_accepted_hosts(host, names),
        agents=(mcp_write, tuple(mcp_submit or ())),
    )
    url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

    def say_start() -> None:
        cli.out.answer({"url": url}, lambda: cli.out.note(f"serving on {url}; stop with Ctrl-C"))
        sys.stdout.flush()  # Whoever started it may wait for the address.

    run(_serve(queue, service, listening, say_start, log_level=log_level.lower(), trusted_proxies=proxies))


def _application(queue: TaskQueue, *, auth: str, hosts: list[str] | None, agents: tuple[bool, tuple[str, ...]]) -> Any:
    """The ASGI application; raises as `queue.asgi` does if a package for it is missing."""
    if agents == (False, ()):
        return queue.asgi(auth=auth, hosts=hosts)
    from tasklib.http.app import create_app
    from tasklib.http.parts import AgentsMay

    return create_app(queue, auth=auth, hosts=hosts, agents=AgentsMay(*agents))  # type: ignore[arg-type]


def _access_from_elsewhere(host: str, names: list[str], proxies: list[str]) -> str | None:
    """Says how the service can be reached from other machines; None if it cannot."""
    from tasklib.http.security.local import foreign_hosts, is_loopback

    if not is_loopback(host):
        return f"listening on {host} lets other machines in"
    foreign = foreign_hosts(names)
    if foreign:
        return f"answering for {', '.join(foreign)} lets others in, by a proxy"
    return f"the proxy {', '.join(proxies)} lets others in" if proxies else None


def _accepted_hosts(host: str, names: list[str]) -> list[str] | None:
    """The host names to accept: those given, and on a loopback address those of this machine; None accepts any."""
    from tasklib.http.security.local import LOOPBACK_HOSTS, is_loopback

    return [*names, *(LOOPBACK_HOSTS if is_loopback(host) else ())] if names else None


def check_address(text: str) -> str:
    """The address or network itself; anything else is an error."""
    from ipaddress import ip_address, ip_network

    try:
        return str(ip_network(text)) if "/" in text else str(ip_address(text))
    except ValueError:
        raise CommandFailed(
            f"--trusted-proxy is an address or a network such as 127.0.0.1 or 10.0.0.0/8, got {text!r}", Exit.USAGE
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address; CommandFailed says why if that is not possible."""
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
    queue: TaskQueue, service: Any, listening: socket.socket, say_start: Callable[[], None], **settings: Any
) -> None:
    import asyncio

    from tasklib.http.server import Server
    from tasklib.worker.service_manager import ServiceManager, informed

    class Announced(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            say_start()  # Only from here on does a signal stop it cleanly.

    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn stops on these and then raises them again; having stopped as asked is a success.
        signal.signal(number, _ignore)
    server = Announced(service, grace_seconds=GRACE_SECONDS, **settings)
    manager = ServiceManager.of(os.environ)
    tables_check = asyncio.ensure_future(_refuse_wrong_tables(queue, server))
    try:
        async with informed(
            manager, queue.timing, is_ready=lambda: server.started, is_stopping=lambda: server.should_exit
        ):
            await server.serve(sockets=[listening])
        if tables_check.done():
            await tables_check
    finally:
        tables_check.cancel()
        await queue.aclose()


async def _refuse_wrong_tables(queue: TaskQueue, server: Any) -> None:
    """End the service if the tables are of another version or program; keep it if the database does not answer."""
    from tasklib.service.service import QueueService

    try:
        await QueueService(queue).administration.arequire_tables()
    except (SchemaMismatch, SchemaTooNew, ForeignTable):
        server.should_exit = True
        raise
    except StorageError:
        return


def _ignore(number: int, frame: Any) -> None:
    """Do nothing."""
