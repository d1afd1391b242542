"""The database's clock, which all programs on a queue share."""

from __future__ import annotations

from datetime import datetime, timedelta

from tasklib.storage.rows import required_moment
from tasklib.storage.statement import Operation, Statement


def read_clock() -> Operation[datetime]:
    """What time it is for the database."""
    return required_moment((yield Statement("read_clock"))[0]["now"])


def start_of_age(age: datetime | timedelta) -> Operation[datetime]:
    """The moment given, or the moment so long ago."""
    return age if isinstance(age, datetime) else (yield from read_clock()) - age
