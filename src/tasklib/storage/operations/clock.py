"""The database's clock, by which everybody on a queue goes."""

from __future__ import annotations

from datetime import datetime, timedelta

from tasklib.storage.rows import moment
from tasklib.storage.statement import Operation, Statement


def read_clock() -> Operation[datetime]:
    """What time it is for the database."""
    clock = moment((yield Statement("read_clock"))[0]["now"])
    assert clock is not None
    return clock


def start_of_age(age: datetime | timedelta) -> Operation[datetime]:
    """The moment before which something is old: as given, or so long ago."""
    return age if isinstance(age, datetime) else (yield from read_clock()) - age
