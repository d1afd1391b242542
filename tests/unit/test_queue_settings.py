"""Keywords that contradict each other, or that nobody knows, are refused before anything is stored or started."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tasklib import ConfigurationError, TaskQueue

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "options", [{"max_attempts": 3, "max_retries": 1}, {"run_after": NOON, "run_at": NOON}], ids=["attempts", "time"]
)
def test_two_words_for_the_same_decision_are_refused(options: dict[str, Any]) -> None:
    with TaskQueue("sqlite:///:memory:") as queue:
        with pytest.raises(ConfigurationError, match=f"give {' or '.join(options)}, not both"):
            queue.enqueue("job", **options)
        assert queue.count() == 0


def test_a_worker_setting_that_does_not_exist_is_named_with_those_that_do() -> None:
    with TaskQueue("sqlite:///:memory:") as queue:
        with pytest.raises(ConfigurationError, match=r"no setting threads; choose from concurrency, .*grace_seconds"):
            queue.run(threads=4)  # type: ignore[call-arg]
