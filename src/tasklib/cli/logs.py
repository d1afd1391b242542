"""The log of a worker: plain lines on stderr that no task can forge."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager

from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.common import LEVELS
from tasklib.cli.show.output import safe


class PlainFormatter(logging.Formatter):
    """`17:22:01 WARNING task …`; control characters in the message are shown as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback under it if there is one."""
        lines = super().format(record).split("\n")
        # Only a traceback has lines; a line break in a message is data and is escaped.
        own = record.getMessage().count("\n") + 1
        return "\n".join([safe("\n".join(lines[:own])), *map(safe, lines[own:])])


def log_to_stderr(level: str) -> None:
    """Send the log of this process to stderr from a level on."""
    logging.basicConfig(level=_checked(level), handlers=[_stderr_handler()], force=True)
    _quieten()


@contextmanager
def log_as_the_program_does(level: str | None) -> Generator[None]:
    """Import the program's modules inside: the logging they set up is used, or ours if they set up none.

    A level that is given applies in both cases; to theirs only for tasklib's own loggers.
    """
    chosen = None if level is None else _checked(level)
    ours, root = logging.getLogger("tasklib"), logging.getLogger()
    # Not on the root, where it would keep the program's basicConfig() from doing anything.
    meanwhile = _stderr_handler()
    ours.addHandler(meanwhile)
    try:
        yield
    finally:
        ours.removeHandler(meanwhile)
    if not root.handlers:
        logging.basicConfig(level=chosen or "INFO", handlers=[_stderr_handler()])
    elif chosen is not None:
        ours.setLevel(chosen)
    _quieten()


def _checked(level: str) -> str:
    if level.lower() not in LEVELS:
        raise CommandFailed(f"no such log level: {level!r}; choose from {', '.join(LEVELS)}", Exit.USAGE)
    return level.upper()


def _stderr_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
    return handler


def _quieten() -> None:
    # It logs every connection attempt while the database is unavailable; we log it once.
    _raise_level("psycopg.pool", logging.ERROR)
    # It logs three lines for every request of an agent.
    _raise_level("mcp", logging.WARNING)


def _raise_level(name: str, level: int) -> None:
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(level)
