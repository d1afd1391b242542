"""How long to keep finished tasks, as a setting says it."""

from __future__ import annotations

import pytest

from tasklib import Config, ConfigurationError
from tasklib.core.retention import Rule, parse_retention
from tasklib.core.task import TaskState


def test_rules_are_for_states_and_names() -> None:
    assert parse_retention("completed=7d, a.b:failed=1.5h,buried=forever") == [
        Rule(None, TaskState.COMPLETED, 7 * 86_400),
        Rule("a.b", TaskState.FAILED, 5400),
        Rule(None, TaskState.BURIED, None),
    ]
    assert parse_retention("") == []


@pytest.mark.parametrize("text", ["7d", "pending=1d", "completed=7", "completed=7x", "completed", "completed=-1d"])
def test_what_is_none_is_refused_where_it_is_set(text: str) -> None:
    with pytest.raises(ConfigurationError, match="completed=7d"):
        parse_retention(text)
    with pytest.raises(ConfigurationError, match="retention"):
        Config("sqlite:///:memory:", retention=text)
