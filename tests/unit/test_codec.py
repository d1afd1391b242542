"""JSON both databases keep the same way: what is taken, what is refused and where, and exact round trips."""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import Mock
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from tasklib.core.codec import MAX_DEPTH, MAX_DIGITS, check_plain, dumps, encode_result, loads, path_text, plain, shown
from tasklib.errors import InvalidPayload, ResultError

NAN = float("nan")

storable_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# Only one kind of surrogate, because two kinds side by side are a pair to PostgreSQL and not lone.
any_text = st.text(st.characters(exclude_categories=["Cs"]) | st.just("\ud800"))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | storable_text
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(storable_text, inner), max_leaves=20
)
doubtful_values = st.recursive(
    st.none() | st.floats() | any_text | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=10,
)


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    A = "a"


class Point(NamedTuple):
    x: int
    y: int


class Name(str):
    """A string of the user's own kind."""


@dataclass
class Pair:
    left: Any
    right: Any = None


class Model(BaseModel):
    value: float = 1.5
    when: date | None = None


class Account(BaseModel):
    password: SecretStr


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def accepts(value: Any) -> bool:
    try:
        plain(value, what="job")
    except InvalidPayload:
        return False
    return True


def only_plain_types(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and only_plain_types(item) for key, item in value.items())
    if type(value) is list:
        return all(map(only_plain_types, value))
    return value is None or type(value) in (str, int, float, bool)


# What is taken


@given(json_values)
def test_plain_values_stay_equal(value: Any):
    assert plain(value, what="job") == value


@pytest.mark.parametrize(
    "value, expected",
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(hours=36), "P1DT12H"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (Path("/tmp/x"), "/tmp/x"),
        (b"abc", "abc"),
        (Color.RED, "red"),
        (Level.LOW, 1),
        (Kind.A, "a"),
        (Name("x"), "x"),
        ({1}, [1]),
        ((1, 2), [1, 2]),
        (Point(1, 2), [1, 2]),
        (deque([1]), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        ({1: "a", Color.RED: "b"}, {"1": "a", "red": "b"}),
        (Pair(1, {2}), {"left": 1, "right": [2]}),
        (Model(when=date(2026, 1, 2)), {"value": 1.5, "when": "2026-01-02"}),
        ((n for n in (1, 2)), [1, 2]),
        ({"model": [Model()]}, {"model": [{"value": 1.5, "when": None}]}),
    ],
)
def test_other_types_become_plain(value: Any, expected: Any):
    result = plain(value, what="job")

    assert (result, only_plain_types(result)) == (expected, True)


def test_the_result_is_a_copy_that_later_changes_do_not_reach():
    given_value: dict[str, Any] = {"inner": {"n": 1}}
    stored = plain(given_value, what="job")
    given_value["inner"]["n"] = 2

    assert stored == {"inner": {"n": 1}}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "\\u0000", "1e+22", "**********", "[" * 200, "9" * 5000])
def test_a_string_that_only_looks_odd_is_kept(text: str):
    assert plain({"text": text}, what="job") == {"text": text}


def test_nesting_is_allowed_up_to_the_limit():
    assert plain(nested(MAX_DEPTH), what="job") == nested(MAX_DEPTH)


def test_width_is_not_depth():
    wide = [[[n]] for n in range(200)]

    assert plain(wide, what="job") == wide


def test_an_integer_is_allowed_up_to_the_limit():
    largest = 10**MAX_DIGITS - 1

    assert plain([largest, -largest], what="job") == [largest, -largest]


@pytest.mark.parametrize(
    "value",
    [SecretStr("hush"), {"deep": [SecretStr("hush")]}, Account(password=SecretStr("hush")), Pair(SecretStr("hush"))],
)
def test_a_secret_is_stored_open_so_that_it_can_arrive(value: Any):
    assert "hush" in dumps(plain(value, what="job"))


# What is refused, and how the place is named


@pytest.mark.parametrize(
    "value, problem",
    [
        (NAN, "NaN and infinities are not JSON (got nan)"),
        ({"a": [1, {"b": NAN}]}, "'a[1].b': NaN"),
        ({"a": float("-inf")}, "'a': NaN and infinities are not JSON (got -inf)"),
        (Model(value=NAN), "'value': NaN"),
        ({"m": Model(value=NAN)}, "'m.value': NaN"),
        ({"t": "a\0b"}, "'t': PostgreSQL cannot store U+0000, here at character 1"),
        ({"k\0": 1}, "U+0000"),
        (["\ud800"], "'[0]': a lone surrogate is not Unicode text, here at character 0"),
        ({"\udfff": 1}, "lone surrogate"),
        ({"n": 10**MAX_DIGITS}, "'n': an integer of over 4300 digits"),
        ({"n": -(10**MAX_DIGITS)}, "'n': an integer of over 4300 digits"),
        ({"a": {"b": object()}}, "'a.b': object cannot be written as JSON (got <object object"),
        ({"f": print}, "'f': builtin_function_or_method cannot be written"),
        ({"m": Mock()}, "'m': Mock cannot be written"),
        ({"b": b"\xff"}, "'b': bytes cannot be written as JSON (got b'\\xff'"),
        ({"p": Pair(object())}, "'p.left': object cannot be written"),
        ({"x": {object(): 1}}, "'x': the key <object object"),
        ({"i": iter([1]), "o": object()}, "'i': an iterator can be read only once"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_place_and_value(value: Any, problem: str):
    with pytest.raises(InvalidPayload) as caught:
        plain(value, what="job")

    assert problem in caught.value.problems[0]


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 300, 5000])
def test_nesting_beyond_the_limit_is_refused(levels: int):
    with pytest.raises(InvalidPayload, match="nested deeper than 64 levels"):
        plain(nested(levels), what="job")


def test_deep_nesting_among_objects_is_refused():
    value: Any = "x" * 200
    for n in range(MAX_DEPTH + 1):
        value = {"a": value, "b": n}

    with pytest.raises(InvalidPayload, match="nested deeper"):
        plain(value, what="job")


def cyclic_list() -> Any:
    loop: list[Any] = []
    loop.append({"again": loop})
    return loop


def cyclic_dataclass() -> Any:
    pair = Pair(1)
    pair.right = [pair]
    return pair


@pytest.mark.parametrize("make", [cyclic_list, cyclic_dataclass])
def test_a_value_that_contains_itself_is_refused(make: Callable[[], Any]):
    with pytest.raises(InvalidPayload, match="contains itself"):
        plain(make(), what="job")


def test_the_task_is_named():
    with pytest.raises(InvalidPayload) as caught:
        plain(NAN, what="send_email")

    assert (caught.value.task, "'send_email'" in str(caught.value)) == ("send_email", True)


def test_a_size_up_to_the_limit_is_allowed():
    assert plain("é" * 10, what="job", limit=22) == "é" * 10


def test_a_size_over_the_limit_is_refused_in_bytes_with_the_largest_part():
    with pytest.raises(InvalidPayload, match=r"38 bytes of JSON, of which 'body' takes 22; the limit is 37"):
        plain({"to": 1, "body": "é" * 10}, what="job", limit=37)


def test_an_error_in_a_users_serializer_is_told_and_kept_as_the_cause():
    class Broken(BaseModel):
        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                raise RuntimeError("no fields today")
            return super().__getattribute__(name)

    with pytest.raises(InvalidPayload, match="'b': Broken cannot be written") as caught:
        plain({"b": Broken()}, what="job")

    assert caught.value.__cause__ is not None


# The quick check of values that are plain already


@given(json_values)
def test_the_quick_check_passes_what_plain_passes(value: Any):
    assert check_plain({"v": value}, what="job") or "**********" in dumps(value)


@pytest.mark.parametrize("value", [{"a": NAN}, {"a": "\0"}, ["\ud800"], nested(MAX_DEPTH + 1), [10**MAX_DIGITS]])
def test_the_quick_check_refuses_what_plain_refuses(value: Any):
    with pytest.raises(InvalidPayload):
        check_plain(value, what="job")


def test_the_quick_check_refuses_a_size_over_the_limit():
    with pytest.raises(InvalidPayload, match="bytes of JSON"):
        check_plain({"a": "x" * 100}, what="job", limit=100)


def test_the_quick_check_tells_that_a_secret_may_be_masked():
    assert not check_plain({"password": "**********"}, what="job")


# Text


@given(json_values)
def test_what_is_written_is_read_back_equal(value: Any):
    assert loads(dumps(value)) == value


@given(json_values)
def test_the_types_of_numbers_survive(value: Any):
    assert repr(loads(dumps(value))) == repr(value)


@given(json_values)
def test_the_text_is_json_for_everybody_else_too(value: Any):
    assert json.loads(dumps(value)) == value


@given(json_values)
def test_bytes_are_read_like_text(value: Any):
    assert loads(dumps(value).encode()) == value


def test_the_text_is_compact_and_not_escaped():
    assert dumps({"a": [1, "é"]}) == '{"a":[1,"é"]}'


@pytest.mark.parametrize("value", [NAN, {"a": float("inf")}, ["\ud800"]])
def test_what_is_not_json_is_not_written(value: Any):
    with pytest.raises(ValueError):
        dumps(value)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "", "{'a': 1}", "01"])
def test_what_is_not_json_is_not_read(text: str):
    with pytest.raises(ValueError):
        loads(text)


def test_rows_written_by_others_may_be_nested_deeper_than_ours_up_to_a_bound():
    assert loads("[" * 150 + "]" * 150)
    for text in ("[" * 300 + "]" * 300, '["\\ud800",' + "[" * 300 + "]" * 301, "[" * 100_000, '"\\ud800"', "9" * 5000):
        with pytest.raises(ValueError):
            loads(text)


def test_a_large_float_is_written_with_a_point_so_that_jsonb_keeps_it_a_float():
    assert dumps([1e22, -1.5e300, "1e+22"]).startswith("[10000000000000000000000.0,-15")


# Both databases


@pytest.fixture(scope="module")
def sqlite_keeps() -> Iterator[Callable[[str], Any]]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE kept (value TEXT CHECK (json_valid(value)))")

        def keep(text: str) -> Any:
            connection.execute("DELETE FROM kept")
            connection.execute("INSERT INTO kept VALUES (?)", (text,))
            return loads(connection.execute("SELECT value FROM kept").fetchone()[0])

        yield keep
    connection.close()


@pytest.fixture
def postgres_keeps(newest_postgres_url: str) -> Iterator[Callable[[str], Any]]:
    with psycopg.connect(newest_postgres_url.partition("?")[0], autocommit=True) as connection:

        def keep(text: str) -> Any:
            row = connection.execute("SELECT (%s::text)::jsonb::text", (text,)).fetchone()
            assert row is not None
            return loads(row[0])

        yield keep


shared_connection = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@shared_connection
@given(json_values)
@example([1e22, 1e23, 5e-324, 1.7976931348623157e308, 2**64, -(2**200), 1.0, "é\u2028\uffff\x7f"])
@example(10**MAX_DIGITS - 1)
@example(nested(MAX_DEPTH))
def test_sqlite_gives_back_what_was_accepted(sqlite_keeps: Callable[[str], Any], value: Any):
    assert repr(sqlite_keeps(dumps(plain(value, what="job")))) == repr(value)


@shared_connection
@given(json_values)
@example([1e22, 1e23, 5e-324, 1.7976931348623157e308, 2**64, -(2**200), 1.0, "é\u2028\uffff\x7f"])
@example(10**MAX_DIGITS - 1)
@example(nested(MAX_DEPTH))
def test_postgresql_gives_back_what_was_accepted(postgres_keeps: Callable[[str], Any], value: Any):
    # An object comes back with its keys in another order, and -0.0 as 0.0: equal, but not alike.
    kept = postgres_keeps(dumps(plain(value, what="job")))

    assert (kept, json.dumps(kept, sort_keys=True).replace("-0.0", "0.0")) == (
        value,
        json.dumps(value, sort_keys=True).replace("-0.0", "0.0"),
    )


@shared_connection
@given(doubtful_values)
@example("\0")
@example({"\ud800": 1})
@example([NAN])
def test_what_is_refused_is_what_postgresql_refuses(postgres_keeps: Callable[[str], Any], value: Any):
    # The standard library writes anything, so that PostgreSQL is the one to decide.
    try:
        postgres_keeps(json.dumps(value, ensure_ascii=True))
    except psycopg.errors.DataError:
        kept = False
    else:
        kept = True

    assert accepts(value) == kept


# Results


@pytest.mark.parametrize(
    "value, text",
    [
        (None, '{"value":null}'),
        (True, '{"value":true}'),
        (False, '{"value":false}'),
        (0, '{"value":0}'),
        (-(2**70), '{"value":-1180591620717411303424}'),
        (1e22, '{"value":10000000000000000000000.0}'),
        ("é", '{"value":"é"}'),
        ({"a": (1, Color.RED)}, '{"value":{"a":[1,"red"]}}'),
        (Model(), '{"value":{"value":1.5,"when":null}}'),
        (Level.LOW, '{"value":1}'),
    ],
)
def test_a_result_is_written_under_value(value: Any, text: str):
    assert encode_result(value, limit=1000) == text


@given(json_values)
def test_every_json_value_can_be_a_result(value: Any):
    assert loads(encode_result(value)) == {"value": value}


@pytest.mark.parametrize(
    "value, problem",
    [
        ({"rows": [NAN]}, "the result cannot be stored: 'rows[0]': NaN"),
        ("a\0", "U+0000"),
        (nested(MAX_DEPTH + 1), "nested deeper"),
        ({"o": object()}, "'o': object cannot be written"),
        ("x" * 100, "102 bytes of JSON; the limit is 100"),
        ({"a": "x" * 100}, "bytes of JSON"),
    ],
    ids=["nan", "nul", "deep", "object", "large text", "large object"],
)
def test_a_result_that_cannot_be_stored_says_what_and_where(value: Any, problem: str):
    with pytest.raises(ResultError) as caught:
        encode_result(value, limit=100)

    assert problem in str(caught.value)


def test_a_coroutine_nobody_awaited_gets_its_own_advice():
    async def work() -> None: ...

    coroutine = work()
    with pytest.raises(ResultError, match=r"returned an awaitable .* `async def`"):
        encode_result(coroutine)
    coroutine.close()


def test_an_exception_that_was_returned_is_to_be_raised():
    with pytest.raises(ResultError, match=r"returned the exception ValueError\('no'\); raise it instead"):
        encode_result(ValueError("no"))


def test_a_secret_in_a_result_stays_masked():
    assert "hush" not in encode_result(Account(password=SecretStr("hush")))


# Helpers for messages


def test_a_place_is_written_as_people_write_it():
    assert path_text(("items", 3, "name")) == "items[3].name"


def test_a_long_value_is_shown_short():
    assert len(shown("x" * 10_000)) < 100


def test_a_value_whose_repr_fails_is_shown_by_its_type():
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Shy" in shown(Shy())


def test_a_giant_integer_can_be_shown():
    assert shown(10**5000).startswith("<int")  # from Python 3.14 on with the number of its digits
