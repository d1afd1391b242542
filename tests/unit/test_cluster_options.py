"""Tasks for a cluster are declared so that they can run there, or refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import TaskQueue
from tasklib.definition import TaskOptions
from tasklib.errors import ConfigurationError
from tasklib.worker import WorkerSettings
from tasklib.worker.execution.cluster import ENGINES, cluster_executors


@pytest.mark.parametrize(
    "given, message",
    [
        ({"executor": "spark"}, "executor must be"),
        ({"executor": "dask", "resources": ["GPU"]}, "resources must be"),
        ({"resources": {"GPU": 1}}, "resources need an executor"),
        ({"executor": "ray", "transactional": True}, "cannot be transactional"),
        ({"executor": "ray", "isolation": "process"}, "leave out isolation"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TaskOptions(**given)


def test_an_address_needs_an_engine() -> None:
    with pytest.raises(ConfigurationError, match="give that too"):
        WorkerSettings(scheduler="tcp://localhost:8786")
    with pytest.raises(ConfigurationError, match="executor must be"):
        WorkerSettings(executor="spark")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_is_not_installed_names_its_extra(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, {"dask": "distributed"}.get(engine, engine), None)
    with (
        TaskQueue("sqlite:///:memory:") as queue,
        pytest.raises(ConfigurationError, match=rf"tasklib-queue\[{engine}\]"),
    ):
        cluster_executors(queue, WorkerSettings(executor=engine), "w")
    with TaskQueue("sqlite:///:memory:") as queue:
        assert cluster_executors(queue, WorkerSettings(), "w") == ()
