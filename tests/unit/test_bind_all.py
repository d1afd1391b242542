"""The arguments of many calls are bound at once exactly as they are one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Secret

from tasklib import InvalidArguments, TaskContext
from tasklib.definition import Definition, FunctionDefinition, Misfit

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class Order(BaseModel):
    """What somebody ordered."""

    number: int
    placed: date


def anything(value: Any) -> None:
    """Takes whatever JSON can hold."""


def simple(n: int, text: str = "", items: list[int] | None = None) -> None:
    """Takes plain types."""


def rich(at: datetime, order: Order | None = None, key: UUID | None = None) -> None:
    """Takes types that are text or objects in JSON."""


def secret(password: Secret[str]) -> None:
    """Takes something that is not shown."""


def with_context(n: int, ctx: TaskContext) -> None:
    """Gets something from the worker."""


def open_with_context(ctx: TaskContext, **more: Any) -> None:
    """Gets something from the worker, and takes any other name."""


@pytest.mark.parametrize(
    "function, rows",
    [
        (simple, [{"n": 1}, {"n": "2", "text": "é ☃ \\ \" ' \n"}, MappingProxyType({"n": 3.0, "items": (4, 5)})]),
        (anything, [{"value": value} for value in (None, 1e22, 0.1, "NaN", "*" * 12, {"Infinity": []}, 10**30, 1e300)]),
        (anything, [{"value": {"at": NEW_YEAR}}, {"value": {1, 2}}]),
        (rich, [{"at": NEW_YEAR}, {"at": "2026-01-01T00:00:00Z", "order": {"number": 1, "placed": "2026-02-03"}}]),
        (secret, [{"password": Secret("first")}, {"password": "second"}]),
        (open_with_context, [{"a": 1}, {}]),
    ],
)
def test_it_stores_what_each_would_store(function: Any, rows: Sequence[Mapping[str, Any]]):
    definition = defined(function)
    assert json.loads(definition.bind_all(rows)) == [definition.bind((), row) for row in rows]


def test_what_can_be_read_only_once_is_read_once():
    rows = [{"n": 1, "items": (n for n in (1, 2))}, {"n": 2, "text": "NaN looks odd, and has each looked at by itself"}]
    assert json.loads(defined(simple).bind_all(rows))[0]["items"] == [1, 2]


@pytest.mark.parametrize(
    "function, bad, told",
    [
        (simple, {"n": "many"}, r"'n': Input should be a valid integer.* \(got 'many'\)"),
        (simple, {}, "'n' is missing"),
        (simple, {"n": 1, "m": 2}, r"'m' is not a parameter \(parameters: n, text, items\)"),
        (simple, {"n": 1, "text": "a\0b"}, r"'text': PostgreSQL cannot store U\+0000"),
        (simple, [("n", 1)], "each row is a mapping of arguments by name"),
        (anything, {"value": [0, math.nan]}, r"'value\[1\]': NaN and infinities are not JSON"),
        (anything, {"value": object()}, "'value': object cannot be written as JSON"),
        (anything, {"value": "x" * 200}, "the limit is 100"),
        (with_context, {"n": 1, "ctx": 2}, "'ctx' is filled in by the worker"),
        (open_with_context, {"ctx": 2}, "'ctx' is filled in by the worker"),
        (secret, {"password": ["hidden"]}, r"'password': Input should be a valid string \(got \*+\)|'\*{10}'"),
    ],
)
def test_the_first_that_does_not_fit_is_told_as_if_it_came_alone(function: Any, bad: Any, told: str):
    definition = defined(function)
    fit = {"simple": {"n": 1}, "anything": {"value": 1}, "with_context": {"n": 1}, "secret": {"password": "x"}}
    good = fit.get(function.__name__, {})
    with pytest.raises(Misfit) as caught:
        definition.bind_all([good, good, bad, good, bad], limit=100)
    assert caught.value.index == 2
    if isinstance(bad, dict):
        with pytest.raises(InvalidArguments) as alone:
            definition.bind((), bad, limit=100)
        assert caught.value.error.problems == alone.value.problems
    with pytest.raises(InvalidArguments, match=told):
        raise caught.value.error


def test_many_together_may_be_longer_than_one_may_be():
    rows = [{"value": "x" * 60}] * 10
    assert json.loads(defined(anything).bind_all(rows, limit=100)) == rows


def defined(function: Any) -> FunctionDefinition:
    """The task of a function."""
    return Definition.for_function(function)
