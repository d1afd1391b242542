"""The log of a worker: plain lines on stderr that no task can forge."""

from __future__ import annotations

import logging
import sys

from tasklib.cli.exits import CommandFailed, Exit
from tasklib.cli.output import safe

LEVELS = ("debug", "info", "warning", "error")


class PlainFormatter(logging.Formatter):
    """`17:22:01 WARNING task …`; control characters in the message are shown as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback under it if there is one."""
        lines = super().format(record).split("\n")
        # Only the lines of a traceback are lines; a line break in a message is somebody's data.
        own = record.getMessage().count("\n") + 1
        return "\n".join([safe("\n".join(lines[:own])), *map(safe, lines[own:])])


def log_to_stderr(level: str) -> None:
    """Send the log of this process to stderr from a level on."""
    if level.lower() not in LEVELS:
        raise CommandFailed(f"no such log level: {level!r}; choose from {', '.join(LEVELS)}", Exit.USAGE)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # It says the same for every connection and attempt while the database is away; we say it once.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
