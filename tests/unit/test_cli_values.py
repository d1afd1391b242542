"""What people type and read on the command line: durations, moments, loose values, spans of time."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklib.cli.options import values
from tasklib.cli.options.values import BadValue
from tasklib.cli.show import times
from tasklib.core.task import Attempt, TaskState
from tasklib.service.service import as_data

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text,seconds",
    [
        ("0", 0),
        ("90", 90),
        ("90s", 90),
        ("15m", 900),
        ("15min", 900),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2W", 1209600),
        ("30d", 2592000),
        ("50ms", 0.05),
    ],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert values.duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "x", "1y", "-1s", "1h30", "1,5h", "1e9", "∞", "99999999999999d", "1h-2m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadValue):
        values.duration(text)


def test_a_moment_without_a_zone_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert values.moment("2030-01-31T09:00") == datetime(2030, 1, 31, 14, tzinfo=UTC)
        assert values.moment("2030-01-31T09:00Z") == datetime(2030, 1, 31, 9, tzinfo=UTC)
        assert values.moment("2030-07-31T09:00") == datetime(2030, 7, 31, 13, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        assert os.environ.get("TZ") != "America/New_York"
        time.tzset()


@pytest.mark.parametrize("text", ["", "noon", "2030-13-01", "2030-01-01T25:00", "0001-01-01T00:00+14:00"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(BadValue):
        values.moment(text)


def test_an_age_is_a_date_or_a_duration_with_its_unit() -> None:
    assert isinstance(values.duration_or_moment("2030-01-31"), datetime)
    assert values.duration_or_moment("30d") == timedelta(days=30)
    assert values.duration_or_moment("0") == timedelta()
    for text in ("30", "2030", "1.5", "20300131"):
        with pytest.raises(BadValue, match=f"{text}' has no unit; write {text}d for days"):
            values.duration_or_moment(text)


@pytest.mark.parametrize(
    "text,value",
    [
        ("5", 5),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ('"5"', "5"),
        ("[1]", [1]),
        ('{"a": 1}', {"a": 1}),
        ("text", "text"),
        ("01", "01"),
        ("", ""),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("[1", "[1"),
        ("+1", "+1"),
    ],
)
def test_a_value_is_json_where_it_is_json(text: str, value: Any) -> None:
    assert values.loose_value(text) == value


@given(st.text())
def test_any_text_is_some_value(text: str) -> None:
    values.loose_value(text)
    assert values.pairs([f"a={text}"], "argument").keys() == {"a"}


@pytest.mark.parametrize(
    "seconds,said",
    [
        (0, "0 s"),
        (0.0123, "0.0123 s"),
        (0.5, "0.5 s"),
        (1.04, "1.0 s"),
        (9.96, "10.0 s"),
        (42, "42 s"),
        (60, "1 min"),
        (3599, "60 min"),
        (7200, "2 h"),
        (86400, "24 h"),
        (86400 * 2, "2 d"),
        (86400 * 1000, "1000 d"),
        (-42, "42 s"),
    ],
)
def test_a_span(seconds: float, said: str) -> None:
    assert times.span(seconds) == said


def test_ago() -> None:
    assert times.ago(NOW, NOW) == "now"
    assert times.ago(NOW + timedelta(seconds=42), NOW) == "in 42 s"
    assert times.ago(NOW - timedelta(minutes=3), NOW) == "3 min ago"


def test_values_as_data() -> None:
    attempt = Attempt(1, NOW, None, "w", "failed")
    assert as_data({"state": TaskState.PENDING, 1: (attempt,)}) == {
        "state": "pending",
        "1": [
            {
                "number": 1,
                "started_at": "2030-01-01T12:00:00Z",
                "ended_at": None,
                "worker_id": "w",
                "outcome": "failed",
                "error": None,
                "release": None,
                "traceback": None,
            }
        ],
    }


@pytest.mark.parametrize(
    "seconds,said", [(0, "0 s"), (0.5, "0.5 s"), (90, "1 min 30 s"), (3600, "1 h"), (129600.25, "36 h 0.25 s")]
)
def test_an_exact_span(seconds: float, said: str) -> None:
    assert times.exact(seconds) == said


@pytest.mark.parametrize(
    "text, mebibytes",
    [("300", 300), ("200MB", 200), ("200 MiB", 200), ("2g", 2048), ("1.5GiB", 1536), ("512K", 1), ("1025kb", 2)],
)
def test_an_amount_of_memory(text: str, mebibytes: int) -> None:
    assert values.mebibytes(text) == mebibytes
