"""The keyword arguments that type checkers know are exactly the options there are."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tasklib.core.queue_info import TaskFilter
from tasklib.definition import TaskKeywords, TaskOptions
from tasklib.queue import Filters
from tasklib.submission import SubmitKeywords, SubmitOptions


@pytest.mark.parametrize(
    "keywords, values, beside",
    [
        (TaskKeywords, TaskOptions, set()),
        (SubmitKeywords, SubmitOptions, set()),
        (Filters, TaskFilter, {"states", "name", "duration", "wait"}),  # the last two are written in `search`
    ],
    ids=["task", "submit", "filter"],
)
def test_keywords_are_the_fields(keywords: Any, values: Any, beside: set[str]) -> None:
    assert set(keywords.__annotations__) == {entry.name for entry in fields(values)} - beside
