"""When a repeated task runs: cron in a time zone, or an interval; and what happens to ticks that were missed.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain, islice
from typing import Any, Literal, Self, get_args
from uuid import UUID

from tasklib.core.numbers import is_number
from tasklib.core.time.clock import require_storable
from tasklib.errors import ConfigurationError

Misfire = Literal["one", "skip", "all"]
Overlap = Literal["allow", "skip"]

ON_TIME_SECONDS = 60.0
"""A tick that is fired later than this was missed; until then it only came late."""
MAX_AT_ONCE = 1000
"""Ticks that `misfire="all"` makes up for in one transaction."""
UNIQUE_KEY_PREFIX = "schedule:"
"""The prefix of the unique keys that keep schedules with `overlap="skip"` to one task at a time."""
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""The nicknames of cron."""
NO_TIME = timedelta()
LOOKS_BACK = tuple(timedelta(days=days) for days in (1 / 1440, 1 / 24, 1, 31, 366, 36_600))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The definition of a schedule; validated.

    Examples:
        >>> plan = Plan(name="morning", task="add", cron="0 9 * * mon-fri", tz="Europe/Paris", kwargs={"a": 1})
        >>> Plan(name="morning", task="add", cron="every day at nine")
        Traceback (most recent call last):
        tasklib.errors.ConfigurationError: ...
    """

    name: str
    task: str
    cron: str | None = None
    """Five fields, six with seconds first, or a name such as `@daily`."""
    every: float | None = None
    """Seconds between runs, counted from `starts_at` or from when the schedule was made."""
    tz: str = "UTC"
    kwargs: Any = field(default_factory=dict[str, Any])
    misfire: Misfire = "one"
    """Missed ticks, because no worker ran: run once for all of them, not at all, or once for each."""
    overlap: Overlap = "allow"
    """What to do when the run before is not finished yet."""
    jitter: float = 0.0
    """Seconds by which each run is delayed at random, at most."""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of each task: priority, tags, max_retries, timeout_seconds."""
    secrets: Sequence[str] | None = None
    """Which arguments the code declares secret, for programs that show the schedule without the code."""

    def __repr__(self) -> str:
        from tasklib.core.redaction import Redactor

        shown = Redactor().plan(self)
        return f"Plan({', '.join(f'{each}={getattr(shown, each)!r}' for each in self.fields())})"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ConfigurationError(f"schedule {self.name!r} needs either cron= or every=, and not both")
        _check_choice(self.name, "misfire", self.misfire, get_args(Misfire))
        _check_choice(self.name, "overlap", self.overlap, get_args(Overlap))
        for what in ("starts_at", "ends_at"):
            moment = getattr(self, what)
            if moment is not None:
                require_storable(moment, what)
        if self.starts_at is not None and self.ends_at is not None and self.ends_at < self.starts_at:
            raise ConfigurationError(
                f"schedule {self.name!r} would never run: it ends at {self.ends_at.isoformat()}, before it starts at "
                f"{self.starts_at.isoformat()}; give a later ends_at"
            )
        zone(self.tz)  # an interval needs none, but a wrong one is still a mistake
        if not _is_seconds(self.jitter, 0):
            raise ConfigurationError(f"schedule {self.name!r}: jitter is a number of seconds, got {self.jitter!r}")
        if self.every is not None:
            if not _is_seconds(self.every, 0.1):
                raise ConfigurationError(
                    f"schedule {self.name!r}: every is a number of seconds, 0.1 or more, got {self.every!r}"
                )
        else:
            next(_cron_ticks(self, datetime(2000, 1, 1, tzinfo=UTC)), None)

    @classmethod
    def over(cls, task: str, **decided: Any) -> Self:
        """The plan of a schedule declared in code over a task; named like the task by default."""
        cls.check_names(decided)
        given: dict[str, Any] = {"name": task, "task": task, **decided}
        return cls(**given)

    @classmethod
    def check_names(cls, decided: Iterable[str]) -> None:
        """Refuse what no schedule has, and say where an option of its tasks belongs."""
        known = [name for name in cls.fields() if name != "task"]
        for key in decided:
            if key not in known:
                raise ConfigurationError(
                    f"a schedule has no {key!r}; it has {', '.join(known)}, and what each of its tasks has goes into "
                    "options, as in options={'priority': 5}"
                )

    @property
    def unique_key(self) -> str:
        """The unique key that only one task of the schedule can hold at a time."""
        return f"{UNIQUE_KEY_PREFIX}{self.name}"

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(each.name for each in fields(cls))

    def first_run(self, now: datetime) -> datetime | None:
        """When the schedule runs first, if it is made now."""
        start = max(self.starts_at or now, now)
        if self.every is not None:
            return self._within(start) if self.starts_at is not None else self.next_run(now)
        return self.next_run(start - timedelta(microseconds=1))

    def next_run(self, after: datetime) -> datetime | None:
        """The first tick after a moment, which for an interval is a tick itself; None after the last one.

        Examples:
            >>> plan = Plan(name="morning", task="add", cron="0 9 * * *", tz="Europe/Paris")
            >>> plan.next_run(datetime(2030, 1, 1, 12, tzinfo=UTC)).isoformat()
            '2030-01-02T08:00:00+00:00'
        """
        if self.every is not None:
            try:
                return self._within(after + timedelta(seconds=self.every))
            except OverflowError:
                return None  # after the last year that there is
        return self._within(next(_cron_ticks(self, after), None))

    def upcoming(self, start: datetime | None, count: int = 5) -> list[datetime]:
        """The next runs, the first of them at `start`."""
        runs: list[datetime] = []
        while start is not None and len(runs) < count:
            runs.append(start)
            start = self.next_run(start)
        return runs

    def due(self, tick: datetime, now: datetime) -> tuple[list[datetime], datetime | None]:
        """The ticks to run now, given the one that is due, and the next one after them.

        Of very many that `misfire="all"` makes up for, those after the first are due again at once.
        """
        if self.misfire == "all":
            ticks = list(islice(self._until(tick, now), MAX_AT_ONCE))
            return ticks, self.next_run(ticks[-1])
        last = self._latest(tick, now)
        on_time = (now - last).total_seconds() <= ON_TIME_SECONDS
        return ([last] if self.misfire == "one" or on_time else []), self.next_run(last)

    def following(self, tick: datetime, now: datetime) -> datetime | None:
        """The first tick after now, given one that has come."""
        return self.next_run(self._latest(tick, now))

    def _until(self, tick: datetime, now: datetime) -> Iterator[datetime]:
        """A tick that has come, and those after it that have come too."""
        if self.every is not None:
            return (tick + timedelta(seconds=self.every * n) for n in range(self._passed(tick, now) + 1))
        return chain([tick], _cron_until(self, tick, self._end(now)))

    def _latest(self, tick: datetime, now: datetime) -> datetime:
        """The last tick that has come, given an earlier one."""
        if self.every is not None:
            return tick + timedelta(seconds=self.every * self._passed(tick, now))
        # Searched near the end first: since the earlier tick there may have been a million.
        for back in LOOKS_BACK:
            start = max(tick, self._end(now) - back)
            for last in deque(_cron_until(self, start, self._end(now)), maxlen=1):
                return last
            if start == tick:
                break
        return tick

    def _passed(self, tick: datetime, now: datetime) -> int:
        assert self.every is not None
        return int((self._end(now) - tick).total_seconds() / self.every)

    def _end(self, now: datetime) -> datetime:
        return now if self.ends_at is None else min(now, self.ends_at)

    def _within(self, tick: datetime | None) -> datetime | None:
        if tick is None or (self.ends_at is not None and tick > self.ends_at):
            return None
        return tick


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BrokenPlan(Plan):
    """A stored plan that cannot run: as much of it as can be shown, unchecked."""

    def __post_init__(self) -> None:
        """Nothing is checked."""

    @classmethod
    def of(cls, name: str, document: Any) -> Self:
        """What can be shown of what is stored."""
        stored: dict[str, Any] = document if isinstance(document, dict) else {}  # pyright: ignore[reportUnknownVariableType]
        given: dict[str, Any] = {"task": "", "name": name}
        for key, kind in _SHOWN.items():
            if key in stored and isinstance(stored[key], kind) and not isinstance(stored[key], bool):
                given[key] = stored[key]
        if (
            not all(isinstance(each, str) for each in given.get("secrets", ()))
            or "secrets" in stored.keys() - given.keys()
        ):
            given |= {"kwargs": None, "secrets": None}  # which of them may be shown is not known
        return cls(**given)


_SHOWN: Mapping[str, Any] = {
    **dict.fromkeys(("task", "cron", "tz", "misfire", "overlap"), str),
    **dict.fromkeys(("every", "jitter"), int | float),
    **dict.fromkeys(("starts_at", "ends_at"), datetime),
    "options": dict,
    "secrets": list,
    "kwargs": object,
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it stood in the database when it was read.

    Examples:
        >>> schedule = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1})
        >>> schedule.name, schedule.plan.task, schedule.plan.every
        ('often', 'add', 60.0)
    """

    plan: Plan
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_task_id: UUID | None
    paused_at: datetime | None
    paused_by: str | None
    declared: bool
    """Declared in code, and changed and removed with it."""
    version: int
    created_at: datetime
    updated_at: datetime
    error: str | None = None
    """Why it cannot run, which stops no other; None if nothing is wrong."""

    @property
    def name(self) -> str:
        """The schedule's own name."""
        return self.plan.name

    def next_runs(self, count: int = 5) -> list[datetime]:
        """The next times it runs; none while it is paused.

        Examples:
            >>> first, second = queue.add_schedule("often", task="add", every=60.0, kwargs={"a": 1}).next_runs(2)
            >>> second - first
            datetime.timedelta(seconds=60)
        """
        stopped = self.paused_at is not None or isinstance(self.plan, BrokenPlan)
        return [] if stopped else self.plan.upcoming(self.next_run_at, count)


def zone(name: str) -> tzinfo:
    """The IANA time zone of this name."""
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"no such time zone: {name!r}; use an IANA name such as Europe/Paris or America/New_York"
        ) from error


def cron_in_words(cron: str | None) -> str | None:
    """What a cron expression says, as `At 09:00 on Monday through Friday`; None for an interval and for no cron.

    Examples:
        >>> cron_in_words("0 9 * * mon-fri")
        'At 09:00 on Monday through Friday'
    """
    from cronsim import CronSim, CronSimError

    if cron is None:
        return None
    try:
        return CronSim(_spelled_out(cron), datetime(2000, 1, 1, tzinfo=UTC)).explain()
    except (CronSimError, AttributeError):
        return None


def _spelled_out(cron: str) -> str:
    return NICKNAMES.get(cron.strip().lower(), cron)


def _cron_ticks(plan: Plan, after: datetime) -> Iterator[datetime]:
    from cronsim import CronSimError

    assert plan.cron is not None
    cron = _spelled_out(plan.cron)
    try:
        for local in _local_ticks(cron, after.astimezone(zone(plan.tz))):
            tick = local.astimezone(UTC)
            if tick > after:  # Where the clock is set back, the local time alone does not say so.
                yield tick
    except OverflowError:
        return  # after the last year that there is
    except (CronSimError, AttributeError) as error:
        raise ConfigurationError(
            f"schedule {plan.name!r}: {plan.cron!r} is not a cron expression ({error}); it has five fields "
            "(minute hour day month weekday), for example '0 9 * * mon-fri', or six with seconds first, "
            f"or is one of {', '.join(NICKNAMES)}"
        ) from error


def _local_ticks(cron: str, after: datetime) -> Iterator[datetime]:
    """The times of a cron expression after a moment, in that moment's time zone; perhaps some before it too."""
    from cronsim import CronSim

    parts = cron.split()
    at_fixed_times = len(parts) == 5 and not any(part.startswith("*") for part in parts[:2])
    if after.tzinfo is UTC or at_fixed_times:
        return iter(CronSim(cron, after))  # Fixed times that the clock skips run after the jump, and none runs twice.
    return _whenever_the_clock_shows(cron, after)


def _whenever_the_clock_shows(cron: str, after: datetime) -> Iterator[datetime]:
    """Each moment at which the local clock shows a time of the expression: twice where it is set back, and never where
    it skips that time.  Some moments before `after` come first.

    CronSim gets no time zone here: stepping through the hours of one, it loses times on a day that begins with a jump,
    and where the clock jumps by half an hour.
    """
    from cronsim import CronSim

    shown = after.replace(tzinfo=None)
    if not after.fold:
        shown -= _set_back_by(after)  # The clock will show these times again.
    again: deque[datetime] = deque()
    for time in CronSim(cron, shown):
        local = time.replace(tzinfo=after.tzinfo)
        set_back_by = _set_back_by(local)
        if set_back_by > NO_TIME:
            again.append(local.replace(fold=1))
        else:
            yield from again
            again.clear()
        if set_back_by >= NO_TIME:
            yield local


def _set_back_by(local: datetime) -> timedelta:
    """How far the clock is set back before it shows this time again; zero if it shows it once, negative if never."""
    first, second = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    assert first is not None
    assert second is not None
    return first - second


def _cron_until(plan: Plan, after: datetime, until: datetime) -> Iterator[datetime]:
    for tick in _cron_ticks(plan, after):
        if tick > until:
            return
        yield tick


def _is_seconds(value: Any, least: float) -> bool:
    return is_number(value) and least <= value < 1e9


def _check_choice(schedule: str, what: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(f"schedule {schedule!r}: {what} is one of {', '.join(choices)}, got {value!r}")
