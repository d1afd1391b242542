"""What every client that works on tasks over HTTP must do, tried against a real service with kills.

    python clients/conformance.py [--only=results,cancel] COMMAND [ARGUMENT ...]

The command starts one worker.  It finds in its environment `TASKLIB_URL`, `TASKLIB_TOKEN`, `TASKLIB_WORKER_ID` and
`TASKLIB_WORKER_TIMEOUT_SECONDS`, works on two tasks at once, drains and ends with 0 on SIGTERM, and has these handlers:

    echo    returns its payload
    fail    raises an error with the text `message`
    reject  the same, and the task must not be tried again
    later   asks to be tried again after `seconds`
    snooze  asks to run again after `seconds`, without spending the attempt
    work    logs the line `begun` as a warning, reports progress 0.5, takes `seconds`, returns
            {"worker": TASKLIB_WORKER_ID, "attempt": …}
    wait    never ends by itself, only when it is asked to
    draw    a workflow: records a random number as the step `draw`, waits for the event `event` under the key `told`,
            and returns [the number, what the event told]
    change  a workflow: records 1 as the step `same` and waits for the event `event` under the key `told`; when it has
            recorded steps already, it sleeps under the key `same` instead, as changed code would
    fan     a workflow: runs `echo` for each of `payloads` as children under the key `all`, and returns their results
            in order
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds: against hanging only."""
WORKER_TIMEOUT = 12.0
"""Seconds without a heartbeat after which a worker is dead: more than a busy machine keeps one waiting."""
DEAD_SOON = 2.0
"""The same for a worker that is killed or paused."""

Check = Callable[["Bench"], None]


class Service:
    """A real service on a database of its own, which can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._database = f"sqlite:///{folder / 'tasks.db'}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        made = subprocess.run(
            [*TASKLIB, "token", "create", "conformance", "--role", "admin", "--json", "--database-url", self._database],
            check=True,
            capture_output=True,
            text=True,
        )
        self.token = json.loads(made.stdout)["token"]
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [*TASKLIB, "serve", "--port", str(self._port), "--database-url", self._database]
        self._process = subprocess.Popen(
            [*command, "--log-level", "error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: self.ask("GET", "/api/tasks/stats") is not None, "the service answers")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of the service; None if it cannot be reached."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                text = answer.read()
        except urllib.error.HTTPError:
            raise
        except (urllib.error.URLError, OSError):
            return None
        return json.loads(text) if text else {}


TASKLIB = [sys.executable, "-m", "tasklib"]


class Bench:
    """The service, and workers of the client that is tried."""

    numbers = itertools.count(1)
    """Of all workers: no two have the same name."""

    def __init__(self, command: list[str], service: Service) -> None:
        self._command = command
        self.service = service

    @contextmanager
    def worker(self, timeout: float = WORKER_TIMEOUT) -> Iterator[Worker]:
        """A worker, ready to claim; killed at the end unless it has ended."""
        name = f"tried-{next(self.numbers)}"
        environment = {
            **os.environ,
            "TASKLIB_URL": self.service.url,
            "TASKLIB_TOKEN": self.service.token,
            "TASKLIB_WORKER_ID": name,
            "TASKLIB_WORKER_TIMEOUT_SECONDS": str(timeout),
        }
        process = subprocess.Popen(self._command, env=environment)
        worker = Worker(name, process)
        try:
            until(lambda: self.knows(name), f"{name} registers", process)
            yield worker
        finally:
            process.kill()
            process.wait()

    def knows(self, name: str) -> bool:
        """Whether the service lists a worker of this name."""
        return any(each["workerId"] == name for each in self.service.ask("GET", "/api/workers")["workers"])

    def submit(self, type: str, payload: Any, **options: Any) -> str:
        """The id of a new task."""
        body = {"type": type, "payload": payload, "options": options}
        return str(self.service.ask("POST", "/api/tasks", body)["id"])

    def task(self, task_id: str) -> dict[str, Any]:
        """The task as it is now."""
        found: dict[str, Any] | None = self.service.ask("GET", f"/api/tasks/{task_id}")
        return found or {"status": "unknown"}

    def ended(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """The task, once it is in one of these statuses."""
        wanted = statuses or ("completed",)
        until(lambda: self.task(task_id)["status"] in wanted, f"task {task_id} is {' or '.join(wanted)}")
        return self.task(task_id)

    def begun(self, task_id: str) -> None:
        """Wait until its handler has reported progress."""
        until(lambda: self.task(task_id).get("progress") == 0.5, f"task {task_id} reports progress")


class Worker:
    """A worker process of the client."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.process = process


def check_results(bench: Bench) -> None:
    """Payloads come back as they were, whatever JSON they are; progress is stored."""
    payloads = [
        {},
        {"text": "Grüße, 世界 🌍\n\t\"'\\"},
        {"deep": [[[{"a": [None, True, 1.5, -7]}]]]},
        [],
        "text",
        0,
        None,
    ]
    with bench.worker():
        ids = [bench.submit("echo", payload) for payload in payloads]
        for payload, task_id in zip(payloads, ids, strict=True):
            expect(bench.ended(task_id)["result"], payload, "the result")
        done = bench.ended(bench.submit("work", {"seconds": 0}))
        expect((done["progress"], done["result"]["attempt"]), (0.5, 1), "progress and attempt")
        expect([(line["level"], line["text"]) for line in done["log"]], [("WARNING", "begun")], "the log")


def check_failures(bench: Bench) -> None:
    """An error is told and retried, or not if it says so, or when it says; a snooze costs no attempt."""
    with bench.worker():
        retried = bench.submit("fail", {"message": "ünlucky number"}, maxAttempts=2)
        final = bench.submit("reject", {"message": "never"}, maxAttempts=5)
        later = bench.submit("later", {"seconds": 3600}, maxAttempts=5)
        snoozed = bench.submit("snooze", {"seconds": 3600}, maxAttempts=1)
        until(lambda: bench.task(retried).get("nextRetryAt") is not None, "it is retried")
        expect("ünlucky number" in bench.task(retried)["error"], True, "the error's text")
        gone = bench.ended(final, "failed")
        expect((gone["attempts"], gone["completedAt"] is not None), (1, True), "no second attempt")
        until(lambda: bench.task(later).get("nextRetryAt") is not None, "it is tried again later")
        waits = bench.task(later)
        expect(waits["nextRetryAt"] > waits["updatedAt"][:17], True, "when")
        # Its version counts the claims, and tells a snoozed task from one that was never claimed.
        until(
            lambda: bench.task(snoozed)["version"] > 0 and bench.task(snoozed)["status"] == "pending", "it is snoozed"
        )
        expect(bench.task(snoozed)["attempts"], 0, "attempts spent by snoozing")


def check_cancel(bench: Bench) -> None:
    """A running task that is cancelled is asked to end, and ends as cancelled."""
    with bench.worker():
        task_id = bench.submit("wait", {})
        until(lambda: bench.task(task_id)["status"] == "processing", "it runs")
        bench.service.ask("POST", f"/api/tasks/{task_id}/cancel")
        bench.ended(task_id, "cancelled")
        bench.ended(bench.submit("echo", 1))  # and the slot is free again


def check_killed_worker(bench: Bench) -> None:
    """The task of a worker that was killed runs again, on another one."""
    with bench.worker(DEAD_SOON) as first:
        task_id = bench.submit("work", {"seconds": 600}, maxAttempts=3)
        bench.begun(task_id)
        first.process.kill()
        first.process.wait()
        with bench.worker():
            until(lambda: bench.task(task_id)["attempts"] == 2, "another worker has it")
        bench.service.ask("POST", f"/api/tasks/{task_id}/cancel")


def check_killed_service(bench: Bench) -> None:
    """A service that is killed and comes back loses no task, and the worker goes on without being started again."""
    with bench.worker():
        running = bench.submit("work", {"seconds": 1})
        bench.begun(running)
        bench.service.kill()
        time.sleep(1.2)  # the work ends while nobody can be told
        bench.service.start()
        expect(bench.ended(running)["attempts"] in (1, 2), True, "attempts")
        ids = [bench.submit("echo", number) for number in range(20)]
        expect([bench.ended(each)["result"] for each in ids], list(range(20)), "results")


def check_paused_worker(bench: Bench) -> None:
    """A worker that was paused until others took over cannot overwrite what they did, and works again afterwards."""
    with bench.worker(DEAD_SOON) as first:
        task_id = bench.submit("work", {"seconds": 1}, maxAttempts=3)
        bench.begun(task_id)
        first.process.send_signal(signal.SIGSTOP)
        with bench.worker() as second:
            done = bench.ended(task_id)
            expect((done["result"]["worker"], done["attempts"]), (second.name, 2), "who did it")
            version = done["version"]
            first.process.send_signal(signal.SIGCONT)
            both = [bench.submit("work", {"seconds": 0.2}) for _ in range(8)]
            workers = {bench.ended(each)["result"]["worker"] for each in both}
            until(
                lambda: (
                    workers.add(bench.ended(bench.submit("work", {"seconds": 0.2}))["result"]["worker"])
                    or first.name in workers
                ),
                "the paused worker works again",
            )
        after = bench.task(task_id)
        expect((after["result"]["worker"], after["version"]), (second.name, version), "what is stored")


def check_workflow(bench: Bench) -> None:
    """A workflow waits without holding its task, and goes on elsewhere with what it has recorded."""
    event = f"conformance:{next(bench.numbers)}"
    with bench.worker(DEAD_SOON) as first:
        task_id = bench.submit("draw", {"event": event})
        until(lambda: bench.task(task_id).get("waitsFor") == f"event {event}", "it waits for the event")
        expect(bench.task(task_id)["status"], "pending", "its status")
        bench.ended(bench.submit("echo", 1))  # its slot is free
        first.process.kill()
        first.process.wait()
    (step, wait) = bench.service.ask("GET", f"/api/tasks/{task_id}/steps")["steps"]
    expect((step["key"], step["state"], wait["kind"]), ("draw", "done", "wait"), "what is recorded")
    bench.service.ask("POST", "/api/events", {"name": event, "payload": {"n": 1}})
    with bench.worker():
        done = bench.ended(task_id)
        expect(done["result"], [step["value"], {"n": 1}], "the result")
        changed = bench.submit("change", {"event": f"{event}:again"})
        until(lambda: bench.task(changed).get("waitsFor") == f"event {event}:again", "it waits for the event too")
        bench.service.ask("POST", "/api/events", {"name": f"{event}:again", "payload": None})
        until(lambda: str(bench.task(changed).get("waitsFor")).startswith("code"), "another kind of step parks it")


def check_children(bench: Bench) -> None:
    """A workflow runs children, also none, and gets their results in order."""
    run_children(bench, [1, "two", {"three": 3}], [])


def check_many_children(bench: Bench) -> None:
    """A workflow runs more children than one request may name."""
    run_children(bench, list(range(1200)))


def run_children(bench: Bench, *lists: list[Any]) -> None:
    with bench.worker():
        for payloads in lists:
            expect(bench.ended(bench.submit("fan", {"payloads": payloads}))["result"], payloads, "the results")


def check_drain(bench: Bench) -> None:
    """SIGTERM: nothing more is claimed, what runs is finished, and nothing is left behind."""
    with bench.worker() as worker:
        running = bench.submit("work", {"seconds": 1})
        bench.begun(running)
        worker.process.send_signal(signal.SIGTERM)
        expect(worker.process.wait(PATIENCE), 0, "the exit code")
        task = bench.task(running)
        expect((task["status"], task["attempts"]), ("completed", 1), "the running task")
        waiting = bench.submit("echo", "later")
        expect(bench.knows(worker.name), False, "the worker signed off")
        expect(bench.task(waiting)["status"], "pending", "a task for others")
    with bench.worker():
        bench.ended(waiting)


CHECKS: tuple[Check, ...] = (
    check_results,
    check_failures,
    check_cancel,
    check_killed_worker,
    check_killed_service,
    check_paused_worker,
    check_workflow,
    check_children,
    check_many_children,
    check_drain,
)


class Failed(Exception):
    """The client does not do what it must."""


def until(is_so: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until something is so; Failed if it does not become so, or the process ends first."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if process is not None and process.poll() is not None:
            raise Failed(f"the worker ended with {process.returncode} before this: {what}")
        if time.monotonic() > deadline:
            raise Failed(f"after {PATIENCE:g} s it is not so that {what}")
        time.sleep(0.05)


def expect(found: object, wanted: object, what: str) -> None:
    """Failed unless they are equal."""
    if found != wanted:
        raise Failed(f"{what}: expected {wanted!r}, found {found!r}")


def main(command: list[str], only: tuple[str, ...] = ()) -> int:
    """Try everything, or only what is named; the number of checks that failed."""
    chosen = [check for check in CHECKS if not only or check.__name__.removeprefix("check_") in only]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder))
        try:
            for check in chosen:
                failures += not passes(check, Bench(command, service))
        finally:
            service.kill()
    return failures


def passes(check: Check, bench: Bench) -> bool:
    """Whether the client passes; says so."""
    name = check.__name__.removeprefix("check_")
    try:
        check(bench)
    except Failed as failed:
        print(f"FAILED {name}: {check.__doc__}\n  {failed}", flush=True)
        return False
    print(f"ok     {name}: {check.__doc__}", flush=True)
    return True


if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = arguments.pop(0).removeprefix("--only=") if arguments[:1] and arguments[0].startswith("--only=") else ""
    if not arguments:
        sys.exit(__doc__)
    sys.exit(main(arguments, tuple(filter(None, named.split(",")))))
