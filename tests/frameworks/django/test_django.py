"""A Django project on tasklib: its own tests, and its worker's life with a real kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.waiting import eventually
from tests.frameworks.django.site import Site, postgres, sqlite

ENQUEUE = """
import json
from shop import elsewhere, tasks
from shop.models import Order
order = Order.objects.create(item="book")
made = {{
    "add": tasks.add.enqueue(1, 2),
    "mail": tasks.mail.enqueue("ada"),
    "found": elsewhere.found.enqueue(),
    "decline": tasks.decline_twice.enqueue(),
    "pid": tasks.pid.using(queue_name="late mail").enqueue(),
    "steps": tasks.pay_in_steps.enqueue(order.pk),
    "asteps": tasks.apay_in_steps.enqueue(order.pk),
    "once": tasks.pay_once.enqueue(order.pk),
    "before": tasks.open_connections.using(priority=-1).enqueue(),
    "broken": tasks.break_connection.using(priority=-2).enqueue(),
    "abroken": tasks.abreak_connection.using(priority=-2).enqueue(),
}}
for _ in range(10):
    tasks.apay.using(priority=-3).enqueue(order.pk)
made["paid"] = tasks.pay.using(priority=-4).enqueue(order.pk)
made["after"] = tasks.open_connections.using(priority=-5).enqueue()
print(json.dumps({{name: result.id for name, result in made.items()}}))
"""
FINISHED = """
import json, time
from tasklib.contrib.django.framework import task_backends
results = {{name: task_backends["default"].get_result(id) for name, id in {ids!r}.items()}}
for _ in range(1200):
    for each in results.values():
        each.refresh()
    if all(each.is_finished for each in results.values()):
        break
    time.sleep(0.05)
print(json.dumps({{name: [each.status, each._return_value, each.attempts,
    [error.exception_class.__name__ for error in each.errors]] for name, each in results.items()}}))
"""
WAIT = "import json; from shop import tasks; print(json.dumps(tasks.wait_for.enqueue({gate!r}, {marker!r}).id))"
QUICK = {"worker_timeout_seconds": 8.0, "heartbeat_interval_seconds": 0.4, "poll_interval_seconds": 0.2}
TICKS = {"tick": {"task": "shop.tasks.add", "every": 0.5, "args": [1], "queue_name": "emails"}}


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    if request.param == "sqlite":
        return sqlite(tmp_path)
    url = request.getfixturevalue("newest_postgres_url")
    return postgres(url, f"{os.getpid()}_{request.function.__name__}")


def test_the_projects_own_tests_pass(databases: dict[str, object], tmp_path: Path) -> None:
    # The tests make databases of their own, which have no schema but the usual one.
    without_schema = {alias: {**each, "OPTIONS": {}} for alias, each in databases.items()}  # type: ignore[dict-item]
    Site(without_schema, tmp_path).manage("test", "--noinput")


def test_a_test_run_without_migrations_has_the_tables_too(tmp_path: Path) -> None:
    without = {alias: {**each, "TEST": {"MIGRATE": False}} for alias, each in sqlite(tmp_path).items()}
    Site(without, tmp_path).manage("test", "--noinput", "shop.tests.test_enqueue.RunTasks")


@pytest.mark.parametrize("databases", [pytest.param("sqlite", marks=pytest.mark.chaos), "postgres"], indirect=True)
def test_a_worker_is_killed_and_another_goes_on(databases: dict[str, object], tmp_path: Path) -> None:
    site = Site(databases, tmp_path, schedules=TICKS, **QUICK)
    site.manage("migrate", "--run-syncdb", "-v0")
    gate, marker = tmp_path / "gate", tmp_path / "marker"
    marker.touch()
    waiting = site.run(WAIT.format(gate=str(gate), marker=str(marker)))

    # Only the one that is killed is soon taken for dead: the other may be kept waiting by a busy machine.
    dies = Site(databases, tmp_path, **QUICK | {"worker_timeout_seconds": 2.0})
    with dies.worker("--processes", "0", "--queues", "default") as first:
        eventually(lambda: len(marker.read_text().split()) == 1)
        first.send_signal(signal.SIGKILL)
        first.wait()

    ids = site.run(ENQUEUE.format())
    with site.worker("--concurrency", "1", "--queues", "default,emails,late mail") as second:
        eventually(lambda: len(marker.read_text().split()) == 2)
        gate.touch()
        results = _finished(site, {**ids, "waiting": waiting})
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 0

    assert results["waiting"][0::2] == ["SUCCESSFUL", 2]
    assert results["waiting"][3] == ["WorkerLost"]
    assert results["add"][:3] == ["SUCCESSFUL", 3, 1]
    assert results["mail"][1] == ["ada", [], "Hi", {}]
    assert results["found"][1] == "found"
    assert results["decline"] == ["FAILED", None, 2, ["Declined", "Declined"]]
    assert results["once"][0] == "SUCCESSFUL"
    # A task that asks for a process of its own finds Django set up there, and the queue of its worker.
    assert results["pid"][0] == "SUCCESSFUL"
    assert results["pid"][1][1] == 1
    assert results["pid"][1][0] != results["before"][1][1]
    # Django's tasks are workflows too, with others as their children; their end is announced once.
    assert results["steps"][:3] == ["SUCCESSFUL", [2, [0, 2, 4]], 1]
    assert results["asteps"][:3] == ["SUCCESSFUL", [10], 1]
    assert [line[0] for line in site.signals("pay_in_steps")].count("task_finished") == 1
    # Connections that were left broken harm no other task, and none stays open but those of the receivers of signals.
    assert (results["broken"][0], results["abroken"][0], results["paid"][0]) == ("SUCCESSFUL",) * 3
    assert max(results["before"][1][0], results["after"][1][0]) <= 2
    # Signals: once for each event, and the last one at the end only.
    assert [line[0] for line in site.signals("wait_for")] == [
        "task_enqueued",
        "task_started",
        "task_started",
        "task_finished",
    ]
    assert site.signals("decline_twice")[-1] == ["task_finished", "decline_twice", "FAILED", "2"]
    assert [line[0] for line in site.signals("decline_twice")].count("task_finished") == 1
    assert [line[0] for line in site.signals("pid")] == ["task_enqueued", "task_started", "task_finished"]
    # The schedule of the settings has made tasks in its queue.
    made = site.run(
        "import json; from tasklib.contrib.django.models import Task; "
        "print(json.dumps(list(Task.objects.filter(name='emails:shop.tasks.add').values_list('kwargs', flat=True))))"
    )
    assert {"a": 1} in made


@pytest.mark.backends("sqlite-file")
def test_one_batch_and_a_bounded_number_of_tasks(tmp_path: Path) -> None:
    site = Site(sqlite(tmp_path), tmp_path)
    site.manage("migrate", "--run-syncdb", "-v0")
    site.run("from shop import tasks; [tasks.add.enqueue(n) for n in range(5)]; print(1)")
    assert "2 attempts made" in site.manage("tasklib_worker", "--batch", "--max-tasks", "2")
    site.manage("tasklib_worker", "--max-tasks", "1")
    assert "2 attempts made" in site.manage("tasklib_worker", "--batch")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    site = Site(sqlite(tmp_path), tmp_path)
    with pytest.raises(AssertionError, match=r"run `manage\.py migrate` first"):
        site.manage("tasklib_worker", "--batch")


def _finished(site: Site, ids: dict[str, str]) -> dict[str, list[Any]]:
    """The results of these tasks, once all have finished: status, value, attempts, classes of errors."""
    return site.run(FINISHED.format(ids=ids))
