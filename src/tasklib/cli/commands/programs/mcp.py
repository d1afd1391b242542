"""The queue for agents: mcp."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any, NoReturn

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.logs import log_to_stderr
from tasklib.cli.options.declare import option

app = Commands("Service")


@app.add()
def mcp(
    cli: Cli,
    allow_writes: Annotated[
        bool, option(None, "Let the agent retry, cancel, pause and resume.", "--allow-writes")
    ] = False,
    allow_submit: Annotated[
        list[str] | None, option("PATTERN", "A type that it may submit, such as 'report.*'; may be repeated.")
    ] = None,
) -> None:
    """Answer an agent over stdin and stdout, by the Model Context Protocol.

    The agent can look at tasks, errors, workers and schedules, ask why a task does not run, and run doctor. Secrets are
    hidden, long values are cut, and everything is marked as data. It can change nothing unless an option allows it.

    Examples:
        tasklib mcp
        tasklib mcp --allow-writes --allow-submit 'report.*'
    """
    import asyncio

    try:
        from tasklib.mcp.access import AgentAccess
        from tasklib.mcp.server import serve_stdio
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"agents need {error.name}, which is not installed: pip install 'tasklib-queue[mcp]'", Exit.USAGE
        ) from error
    log_to_stderr("warning")
    access = AgentAccess(writes=allow_writes, submit=tuple(allow_submit or ()))
    signal.signal(signal.SIGINT, _end_at_once)
    if sys.stdin.isatty():
        cli.out.note("waiting for an agent on stdin; its program starts this command; stop with Ctrl-C")
    asyncio.run(serve_stdio(cli.service, access))


def _end_at_once(*_: Any) -> NoReturn:
    """End at Ctrl-C: the protocol's library waits for a thread that reads stdin, and nothing but its end stops that."""
    sys.stderr.write("interrupted\n")
    sys.stderr.flush()
    os._exit(Exit.INTERRUPTED)
