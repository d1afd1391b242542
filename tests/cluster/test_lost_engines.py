"""The head of a cluster, or what connects bodies to their worker, is killed while bodies run: no task is lost, and
the judge of histories finds none that ran twice at once."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.cluster.conftest import LONG, Fleet, is_gone, wait
from tests.cluster.servers import Servers
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),  # Ray's own, up to 2.50
]


def test_a_head_that_is_killed_costs_what_ran_there_one_attempt_and_the_rest_waits_for_it(
    own_fleet: Fleet, servers: Servers
) -> None:
    own_fleet.start()
    task_id = own_fleet.queue.enqueue("stubborn", {"seconds": LONG}, max_attempts=10)
    body = own_fleet.started(task_id)
    servers.kill_head()
    eventually(lambda: is_gone(body), 120)
    later = own_fleet.queue.enqueue("add", {"a": 1, "b": 1}, max_attempts=1)
    eventually(lambda: f"cannot reach {servers.engine}" in own_fleet.log())
    servers.start()

    task = wait(own_fleet, task_id)
    assert (task.result, task.attempts) == ({"value": 2}, 2)
    assert "ProcessDied" in str(task.history)
    assert wait(own_fleet, later).result == {"value": 2}
    assert "ended with code" not in own_fleet.log(), "the engine has ended the worker"


def test_a_head_that_is_back_at_once_gets_no_second_attempt_while_the_first_still_runs(
    own_fleet: Fleet, servers: Servers
) -> None:
    if servers.engine == "ray":
        pytest.skip("a new head of Ray begins with nodes of its own")
    own_fleet.start()
    task_id = own_fleet.queue.enqueue("stubborn", {"seconds": LONG}, max_attempts=10)
    body = own_fleet.started(task_id)
    servers.kill_head()
    servers.start()

    assert wait(own_fleet, task_id).result == {"value": 2}
    assert is_gone(body)


def test_a_worker_that_stops_when_the_head_is_lost_leaves_the_task_to_others_only_once_its_body_is_gone(
    own_fleet: Fleet, servers: Servers
) -> None:
    if servers.engine == "ray":
        pytest.skip("a new head of Ray begins with nodes of its own")
    stopped = own_fleet.start()
    task_id = own_fleet.queue.enqueue("stubborn", {"seconds": LONG}, max_attempts=10)
    own_fleet.started(task_id)
    servers.kill_head()
    eventually(lambda: "lost dask" in own_fleet.log())
    stopped.send_signal(signal.SIGTERM)
    servers.start()
    own_fleet.start()

    # Postponed, so no attempt is spent: its second run is its first attempt again, and as stubborn.
    second = eventually(lambda: own_fleet.ledger.starts_of(task_id)[1:])
    own_fleet.queue.cancel(task_id)
    assert wait(own_fleet, task_id).state == "cancelled"
    assert len(second) == 1
    assert "did not report its end" not in own_fleet.log()


def test_a_worker_that_is_started_anew_after_the_head_was_killed_runs_the_task_once_more(
    own_fleet: Fleet, servers: Servers
) -> None:
    killed = own_fleet.start()
    task_id = own_fleet.queue.enqueue("stubborn", {"seconds": LONG}, max_attempts=10)
    body = own_fleet.started(task_id)
    servers.kill_head()
    own_fleet.kill(killed)
    eventually(lambda: is_gone(body), 120)
    servers.start()
    own_fleet.start()

    assert wait(own_fleet, task_id).result == {"value": 2}


def test_a_mailbox_that_is_killed_gets_no_second_attempt_while_the_first_still_runs(
    own_fleet: Fleet, servers: Servers
) -> None:
    if servers.engine != "ray":
        pytest.skip("only on Ray do reports go through a process of their own")
    own_fleet.start()
    task_id = own_fleet.queue.enqueue("stubborn", {"seconds": LONG}, max_attempts=10)
    body = psutil.Process(own_fleet.started(task_id))
    node = body.parents()[1]
    mailbox = next(each for each in node.children() if each.cmdline()[0].startswith("ray::Mailbox"))
    mailbox.kill()

    task = wait(own_fleet, task_id)
    assert (task.result, task.attempts) == ({"value": 2}, 2)
    assert is_gone(body.pid)
