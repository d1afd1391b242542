"""Requests nobody thought of, made from the description: no server error, and no answer that it does not describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from tasklib import lifecycle
from tasklib.storage.operations import tokens
from tests.fixtures.queues import open_queue
from tests.integration.http.serving import Server

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
EXAMPLES = [
    pytest.param(6, id="short"),
    pytest.param(50, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(1800)]),
]
MODES = {
    GenerationMode.POSITIVE: CHECKS,
    GenerationMode.NEGATIVE: [*CHECKS, checks.negative_data_rejection],
}


def populate(url: str) -> tuple[dict[str, list[str]], str]:
    """A task in every phase and two schedules, which the requests may name; and a token."""
    with open_queue(url) as queue:
        ids = [str(queue.task_in(phase).id) for phase in lifecycle.Phase if phase is not lifecycle.Phase.PENDING]
        ids.append(str(queue.task_in(lifecycle.Phase.PENDING).id))
        queue.add_schedule("nightly", task="job", cron="0 3 * * *")
        queue.add_schedule("often", task="job", every=1000)
        made = queue.do(lambda: tokens.create_token("ada", tokens.Role.ADMIN, now=None))
    return {"task_id": ids, "name": ["nightly", "often"]}, made.secret


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", list(MODES), ids=lambda mode: mode.value)
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_every_operation_answers_as_described(
    database_url: str, tmp_path: Path, mode: GenerationMode, examples: int
) -> None:
    known, secret = populate(database_url)
    with Server(database_url, tmp_path) as server:
        headers = {"Authorization": f"Bearer {secret}"}
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=headers)
        for found in schema.get_all_operations():
            operation: Any = found.ok()
            if operation.path != "/api/events" and may_be_wrong(operation, mode):  # events never end
                try_operation(operation, known, mode, headers, examples)


def may_be_wrong(operation: Any, mode: GenerationMode) -> bool:
    """Whether there is anything in the request that can be wrong, if it is to be wrong."""
    return mode is GenerationMode.POSITIVE or len(list(operation.body)) + len(list(operation.query)) > 0


def try_operation(
    operation: Any, known: dict[str, list[str]], mode: GenerationMode, headers: dict[str, str], examples: int
) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def answers(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        for name, values in known.items():
            # Half of the time something that exists, or hardly any request would get past "not found".
            if mode is GenerationMode.POSITIVE and name in case.path_parameters and data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(values))
        case.call_and_validate(checks=MODES[mode], headers=headers)

    answers()
