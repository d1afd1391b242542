"""Log records of a child process, shown where the worker's own are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tasklib.worker.messages import Channel

PLAIN = (str, int, float, bool, type(None))
"""Types of the fields that are sent: what JSON can represent."""
LEFT_OUT = frozenset({"args", "exc_info", "msg", "message"})
"""Fields that are sent as finished text instead."""

_formatter = logging.Formatter()


def levels_here() -> dict[str, int]:
    """The log levels set in this process, by logger; the root's has an empty name."""
    found = {"": logging.root.level}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            found[name] = logger.level
    return found


def forward_logs(channel: Channel, levels: Mapping[str, int]) -> None:
    """Send what is logged in this process to the worker, at the levels that are set there.

    A program that sets up logging when it is imported replaces this.
    """
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.root.addHandler(_Forwarder(channel))


def show(fields: Mapping[str, Any]) -> None:
    """Show a record that a child process has sent."""
    logger = logging.getLogger(fields["name"])
    if logger.isEnabledFor(fields["levelno"]):
        logger.handle(logging.makeLogRecord(dict(fields)))


class _Forwarder(logging.Handler):
    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {
                key: value for key, value in vars(record).items() if key not in LEFT_OUT and isinstance(value, PLAIN)
            }
            fields["msg"] = record.getMessage()
            if record.exc_info and not record.exc_text:
                fields["exc_text"] = _formatter.formatException(record.exc_info)
            self._channel.send(["log", fields])
        except Exception:  # noqa: BLE001  as every handler does
            self.handleError(record)
