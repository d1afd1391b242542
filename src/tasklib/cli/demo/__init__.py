"""Everything on one machine by one command: demo."""

from __future__ import annotations

import os
from typing import Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import option

SECONDS = 8.0
"""How long it runs if its output is not a terminal."""

app = Commands("Start here")


@app.add(creates=True)
def demo(
    cli: Cli,
    seconds: Annotated[
        float | None,
        option(
            "SECONDS",
            "Stop after this time.  [env: DEMO_SECONDS; default: 8 if this is not a terminal]",
            min=1,
            max=86400,
        ),
    ] = None,
    keep: Annotated[bool, option(None, "Keep the demo's SQLite file to look at afterwards.", "--keep")] = False,
    port: Annotated[
        int | None, option("PORT", "Port of the dashboard.  [default: 8000, or a free one]", min=0, max=65535)
    ] = None,
    browser: Annotated[bool, option(None, "Open the dashboard, if there is a screen.", show_default=True)] = True,
) -> None:
    """Run a demo of tasklib on this machine.

    Runs a worker, the service with its dashboard, and a mixed workload in this process, on a SQLite file of its own or
    on --database-url, and checks at the end that nothing was lost: exit 0 only if every task has the expected outcome.

    Examples:
        tasklib demo
        tasklib demo --seconds 20 --keep
        tasklib demo --database-url postgresql://localhost/app
    """
    import asyncio

    from tasklib.cli.demo.run import run_demo
    from tasklib.cli.demo.view import show_summary

    limit = seconds or _seconds_of_environment() or (None if cli.out.is_terminal else SECONDS)
    browser = browser and cli.out.is_terminal
    ledger = asyncio.run(run_demo(cli, limit, keep=keep, port=port, browser=browser))
    cli.out.answer(ledger.summary(), lambda: show_summary(cli.out, ledger))
    if not ledger.balanced and not ledger.changes:
        raise CommandFailed("some tasks are missing or have the wrong outcome")


def _seconds_of_environment() -> float | None:
    text = os.environ.get("DEMO_SECONDS")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86400:
        raise CommandFailed(f"DEMO_SECONDS must be a number of seconds from 1 to 86400, got {text!r}", Exit.USAGE)
    return seconds
