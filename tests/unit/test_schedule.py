"""When a repeated task runs."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklib.core.schedule import MAX_AT_ONCE, Plan
from tasklib.errors import ConfigurationError

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def plan(**decided: Any) -> Plan:
    return Plan(**{"name": "nightly", "task": "report", **decided})


def at(text: str, tz: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).astimezone(UTC)


def test_cron_runs_at_local_time() -> None:
    mornings = plan(cron="0 9 * * mon-fri", tz="Europe/Paris")
    assert mornings.first_run(NOW) == at("2026-11-16 09:00", "Europe/Paris")


@pytest.mark.parametrize(
    "name, fields",
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * sun"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@midnight", "0 0 * * *"),
    ],
)
def test_cron_by_its_usual_names(name: str, fields: str) -> None:
    named, spelled = plan(cron=name, tz="Europe/Paris"), plan(cron=fields, tz="Europe/Paris")
    assert named.upcoming(named.first_run(NOW)) == spelled.upcoming(spelled.first_run(NOW))
    assert named.cron == name
    with pytest.raises(ConfigurationError, match=r"'@reboot' is not a cron expression .*@hourly, @daily"):
        plan(cron="@reboot")


def test_cron_with_seconds() -> None:
    assert plan(cron="*/10 * * * * *").first_run(NOW + timedelta(seconds=1)) == NOW + timedelta(seconds=10)


def test_a_moment_that_is_a_tick_is_the_first_run() -> None:
    assert plan(cron="0 12 * * *").first_run(NOW) == NOW


def test_an_interval_runs_one_interval_after_it_was_made() -> None:
    assert plan(every=60).first_run(NOW) == NOW + timedelta(seconds=60)


def test_an_interval_with_a_start_runs_at_its_start() -> None:
    start = NOW + timedelta(hours=1)
    assert plan(every=60, starts_at=start).first_run(NOW) == start


def test_nothing_runs_after_the_end() -> None:
    ending = plan(cron="0 * * * *", ends_at=NOW + timedelta(hours=2))
    assert ending.upcoming(ending.first_run(NOW)) == [NOW + timedelta(hours=n) for n in range(3)]


def test_a_day_without_the_hour_runs_once_right_after_the_gap() -> None:
    """02:30 does not exist on 2026-03-29 in Paris: clocks go from 02:00 to 03:00."""
    nightly = plan(cron="30 2 * * *", tz="Europe/Paris")
    runs = nightly.upcoming(nightly.first_run(at("2026-03-28 12:00", "Europe/Paris")), 2)
    assert runs == [at("2026-03-29 03:00", "Europe/Paris"), at("2026-03-30 02:30", "Europe/Paris")]


def test_a_day_with_the_hour_twice_runs_once() -> None:
    """02:30 comes twice on 2026-10-25 in Paris."""
    nightly = plan(cron="30 2 * * *", tz="Europe/Paris")
    runs = nightly.upcoming(nightly.first_run(at("2026-10-24 12:00", "Europe/Paris")), 2)
    assert [run.astimezone(ZoneInfo("Europe/Paris")).date().day for run in runs] == [25, 26]


@pytest.mark.parametrize(
    "cron, tz, start, shown",
    [
        ("*/30 1 * * *", "America/Havana", "2027-03-13 12:00", ["14 01:00", "14 01:30"]),  # it begins at 01:00
        ("*/30 0 * * *", "America/Havana", "2027-03-13 12:00", ["15 00:00", "15 00:30"]),
        ("*/30 23 * * *", "Australia/Lord_Howe", "2026-04-05 01:00", ["05 23:00", "05 23:30"]),
        ("45 * * * *", "Australia/Lord_Howe", "2026-04-05 01:00", ["05 01:45", "05 01:45", "05 02:45"]),
        ("*/30 1 * * *", "America/New_York", "2026-10-31 12:00", ["01 01:00", "01 01:30", "01 01:00", "01 01:30"]),
    ],
)
def test_a_wildcard_runs_whenever_the_clock_shows_its_times(cron: str, tz: str, start: str, shown: list[str]) -> None:
    open_plan = plan(cron=cron, tz=tz)
    runs = open_plan.upcoming(open_plan.first_run(at(start, tz)), len(shown))
    assert [f"{run.astimezone(ZoneInfo(tz)):%d %H:%M}" for run in runs] == shown
    assert runs == sorted(set(runs))


def test_a_schedule_made_in_a_repeated_hour_does_not_begin_in_the_past() -> None:
    """01:00 to 02:00 comes twice on 2026-11-01 in New York; 06:01 UTC is the second 01:01 there."""
    made = datetime(2026, 11, 1, 6, 1, tzinfo=UTC)
    assert plan(cron="30 1,2 * * *", tz="America/New_York").first_run(made) == datetime(2026, 11, 1, 7, 30, tzinfo=UTC)


ZONES = sorted(available_timezones())
MINUTES = st.sampled_from(["0", "30", "*/15", "5,35", "10-20"])
HOURS = st.sampled_from(["4", "*/6", "8-18", "23", "*"])
DAYS = st.sampled_from(["*", "1", "15", "28", "1-7"])
MONTHS = st.sampled_from(["*", "1", "jun", "2-4"])
WEEKDAYS = st.sampled_from(["*", "mon", "mon-fri", "0", "sat"])


@settings(max_examples=100)
@given(
    fields=st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS),
    tz=st.sampled_from(ZONES),
    start=st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2040, 1, 1)),  # noqa: DTZ001
)
def test_cron_agrees_with_another_library_away_from_clock_changes(
    fields: tuple[str, ...], tz: str, start: datetime
) -> None:
    """Both libraries have the same answer on every day on which local time does not jump."""
    day, weekday = fields[2], fields[4]
    if day != "*" and weekday != "*":
        fields = (*fields[:4], "*")  # the two libraries read "both given" differently: here both are bound
    local = start.replace(tzinfo=ZoneInfo(tz))
    ours = plan(cron=" ".join(fields), tz=tz).next_run(local)
    theirs = croniter(" ".join(fields), local).get_next(datetime).astimezone(UTC)
    assert ours is not None
    if not _jumps(min(ours, theirs), tz) and not _jumps(local, tz):
        assert ours == theirs


def _jumps(moment: datetime, tz: str) -> bool:
    zone = ZoneInfo(tz)
    offsets = {(moment + timedelta(hours=h)).astimezone(zone).utcoffset() for h in (-26, -2, 0, 2, 26)}
    return len(offsets) > 1


# By an hour, at night or at midnight, or by half an hour.
JUMPING = [
    "Europe/Paris",
    "Europe/London",
    "America/New_York",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Asia/Tehran",
    "Australia/Lord_Howe",
]


@settings(max_examples=30)
@given(
    minute=st.sampled_from([0, 15, 30, 45]),
    hour=st.sampled_from([None, 0, 1, 2, 3]),
    tz=st.sampled_from(JUMPING),
    year=st.integers(2005, 2030),
    chance=st.randoms(use_true_random=False),
)
def test_cron_on_days_on_which_the_clock_jumps(
    minute: int, hour: int | None, tz: str, year: int, chance: random.Random
) -> None:
    """Compared with the minutes themselves: an open hour runs at each whose local time fits, a given time once a day,
    the first time it comes, or, if it is left out, when the clock has jumped."""
    jumps = _jumps_in(year, tz)
    if not jumps:
        return
    start = chance.choice(jumps) - timedelta(hours=30)
    minutes = [start + timedelta(minutes=n) for n in range(1, 60 * 60)]
    if hour is None:
        expected = [each for each in minutes if each.astimezone(ZoneInfo(tz)).minute == minute]
    else:
        expected = _once_a_day(minutes, hour * 60 + minute, ZoneInfo(tz))
    each = plan(cron=f"{minute} {'*' if hour is None else hour} * * *", tz=tz, ends_at=minutes[-1])
    assert each.upcoming(each.next_run(start), 100) == expected
    assert each.due(expected[0], minutes[-1]) == (expected[-1:], None)


@cache
def _jumps_in(year: int, tz: str) -> list[datetime]:
    """The moments of a year at which local time jumps."""
    hours = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * n) for n in range(366 * 48)]
    offsets = [hour.astimezone(ZoneInfo(tz)).utcoffset() for hour in hours]
    return [hours[n] for n in range(1, len(hours)) if offsets[n] != offsets[n - 1]]


def _once_a_day(minutes: list[datetime], wanted: int, zone: ZoneInfo) -> list[datetime]:
    found: dict[date, datetime] = {}
    for before, each in pairwise([minutes[0] - timedelta(minutes=1), *minutes]):
        was, local = (moment.astimezone(zone).replace(tzinfo=None) for moment in (before, each))
        target = datetime.combine(local.date(), time(wanted // 60, wanted % 60))
        if was < target <= local:
            found.setdefault(local.date(), each)
    return list(found.values())


class TestMissedTicks:
    """Ten minutes without a worker, of a schedule that runs every minute."""

    due = NOW - timedelta(minutes=10)

    @pytest.mark.parametrize("times", [{"cron": "* * * * *"}, {"every": 60}])
    def test_one_runs_the_latest(self, times: Any) -> None:
        ticks, following = plan(**times, misfire="one").due(self.due, NOW)
        assert (ticks, following) == ([NOW], NOW + timedelta(minutes=1))

    @pytest.mark.parametrize("times", [{"cron": "* * * * *"}, {"every": 60}])
    def test_all_runs_each(self, times: Any) -> None:
        ticks, following = plan(**times, misfire="all").due(self.due, NOW)
        assert ticks == [self.due + timedelta(minutes=n) for n in range(11)]
        assert following == NOW + timedelta(minutes=1)

    def test_skip_runs_none_of_those_missed(self) -> None:
        ticks, following = plan(cron="0 12 * * *", misfire="skip").due(NOW, NOW + timedelta(hours=1))
        assert (ticks, following) == ([], NOW + timedelta(days=1))

    def test_skip_runs_one_that_is_on_time(self) -> None:
        ticks, _ = plan(cron="0 12 * * *", misfire="skip").due(NOW, NOW + timedelta(seconds=2))
        assert ticks == [NOW]

    @pytest.mark.parametrize("times", [{"cron": "* * * * * *"}, {"every": 1}])
    def test_all_is_made_up_for_in_bounded_parts_of_which_none_is_left_out(self, times: Any) -> None:
        start = NOW - timedelta(seconds=MAX_AT_ONCE + 1)
        ticks, following = plan(**times, misfire="all").due(start, NOW)
        assert ticks == [start + timedelta(seconds=n) for n in range(MAX_AT_ONCE)]
        assert following is not None
        rest, following = plan(**times, misfire="all").due(following, NOW)
        assert (rest, following) == ([NOW - timedelta(seconds=1), NOW], NOW + timedelta(seconds=1))

    @pytest.mark.parametrize("times", [{"cron": "* * * * * *"}, {"every": 1}])
    def test_one_runs_the_latest_of_very_many(self, times: Any) -> None:
        ticks, following = plan(**times).due(NOW - timedelta(days=365), NOW)
        assert (ticks, following) == ([NOW], NOW + timedelta(seconds=1))
        assert plan(**times, misfire="all").following(NOW - timedelta(days=365), NOW) == following

    @pytest.mark.parametrize("misfire, count", [("all", 6), ("one", 1)])
    def test_none_comes_after_the_end(self, misfire: Any, count: int) -> None:
        ends = NOW - timedelta(minutes=5)
        for times in ({"cron": "* * * * *"}, {"every": 60}):
            ticks, following = plan(**times, misfire=misfire, ends_at=ends).due(self.due, NOW)
            assert (len(ticks), ticks[-1], following) == (count, ends, None)


@pytest.mark.parametrize(
    "decided, message",
    [
        ({}, "either cron= or every="),
        ({"cron": "* * * * *", "every": 1}, "either cron= or every="),
        ({"cron": "61 * * * *"}, "not a cron expression"),
        ({"cron": "nonsense"}, "not a cron expression"),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, "no such time zone: 'Mars/Olympus'"),
        ({"every": 1, "tz": "Mars/Olympus"}, "no such time zone: 'Mars/Olympus'"),
        ({"every": 0}, "0.1 or more, got 0"),
        ({"every": "10"}, "0.1 or more, got '10'"),
        ({"every": 1, "misfire": "maybe"}, "misfire is one of one, skip, all, got 'maybe'"),
        ({"every": 1, "overlap": "kill"}, "overlap is one of allow, skip, got 'kill'"),
        ({"every": 1, "jitter": -1}, "jitter is a number of seconds, got -1"),
        ({"every": 1, "starts_at": datetime(2026, 1, 1)}, "starts_at needs a time zone"),  # noqa: DTZ001
        ({"every": 1, "ends_at": datetime.max.replace(tzinfo=UTC)}, "ends_at must lie between"),
    ],
)
def test_what_cannot_work_is_refused_by_value(decided: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan(**decided)


def test_a_declaration_is_named_like_its_task_and_refuses_what_it_does_not_know() -> None:
    assert Plan.over("report", every=60).name == "report"
    with pytest.raises(ConfigurationError, match="no 'crom'"):
        Plan.over("report", crom="* * * * *")
