"""How long to keep finished tasks, as a setting says it."""

from __future__ import annotations

import pytest

from tasklib import Config, ConfigurationError
from tasklib.core.retention import Rule, parse_fact_retention, parse_retention
from tasklib.core.task import TaskState


def test_rules_are_for_states_and_names() -> None:
    assert parse_retention("completed=7d, a.b:failed=1.5h,buried=forever") == [
        Rule(None, TaskState.COMPLETED, 7 * 86_400),
        Rule("a.b", TaskState.FAILED, 5400),
        Rule(None, TaskState.BURIED, None),
    ]
    assert parse_retention("") == []


def test_facts_are_kept_for_thirty_days_or_as_long_as_a_rule_says() -> None:
    assert parse_fact_retention("completed=7d") == 30 * 86_400
    assert parse_fact_retention("completed=7d, facts=90d") == 90 * 86_400
    assert parse_fact_retention("facts=forever") is None
    assert parse_fact_retention("facts=5000y") is None
    assert parse_retention("facts=90d") == []


@pytest.mark.parametrize(
    "text", ["report:facts=1d", "7d", "pending=1d", "completed=7", "completed=7x", "completed", "completed=-1d"]
)
def test_what_is_none_is_refused_where_it_is_set(text: str) -> None:
    with pytest.raises(ConfigurationError, match="completed=7d"):
        parse_retention(text)
    with pytest.raises(ConfigurationError, match="retention"):
        Config("sqlite:///:memory:", retention=text)
