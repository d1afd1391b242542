"""Real local clusters, one of each engine for the whole run, and workers that send bodies there; each run is judged."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from tasklib import Config, Task, TaskQueue
from tests.chaos.history import History
from tests.chaos.judging import Watch
from tests.chaos.judging import pytest_runtest_makereport as pytest_runtest_makereport
from tests.chaos.judging import watch as watch
from tests.chaos.ledger import LEDGER, Ledger
from tests.cluster.servers import Servers, servers_of
from tests.fixtures.waiting import eventually

ROOT = Path(__file__).parents[2]
SLOTS = 2
LONG = 120.0
WORKER_TIMEOUT = 4.0
MODULES = {"dask": "distributed", "ray": "ray"}
MARK = "CLUSTER_RUN"


@dataclass(frozen=True)
class Engine:
    """A cluster that runs."""

    name: str
    address: str


@pytest.fixture(scope="session")
def ledger_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all bodies of a run write: the processes of a cluster have the variables with which it was started."""
    path = tmp_path_factory.mktemp("cluster") / "ledger"
    os.environ[LEDGER] = str(path)
    # Of this run alone: newer versions of Ray otherwise use one or none, by what is in the home.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex * 2}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return path


@pytest.fixture(scope="session", params=list(MODULES))
def engine(request: pytest.FixtureRequest, ledger_path: Path) -> Iterator[Engine]:
    """One cluster after the other, with two slots."""
    name = installed(request.param)
    with {"dask": dask_cluster, "ray": ray_cluster}[name]() as address:
        yield Engine(name, address)


def installed(name: str) -> str:
    """The engine's name; without it the test is skipped."""
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"{name} is not installed here: make test-cluster makes an environment with it")
    return name


@contextmanager
def dask_cluster() -> Iterator[str]:
    dask = importlib.import_module("distributed")
    with dask.LocalCluster(n_workers=SLOTS, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@contextmanager
def ray_cluster() -> Iterator[str]:
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # as it will be: older ones warn until it is said
    ray = importlib.import_module("ray")
    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


class Fleet:
    """Workers of one queue, and what their bodies did."""

    def __init__(self, engine: Engine, queue: TaskQueue, history: History, folder: Path) -> None:
        assert history.ledger is not None
        self.engine = engine
        self.queue = queue
        self.history = history
        self.ledger = history.ledger
        self._folder = folder
        self._services: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, scheduler: str | None = None) -> subprocess.Popen[bytes]:
        """A `tasklib worker` whose bodies run on the cluster; returns when it works."""
        log = self._folder / f"worker-{len(self._services)}.log"
        words = ["worker", "tests.cluster.bodies", "--grace", "5", "--executor", self.engine.name]
        words += ["--scheduler", scheduler or self.engine.address, *options]
        environment = os.environ | {
            "DATABASE_URL": self.queue.config.database_url,
            "TASKLIB_WORKER_TIMEOUT_SECONDS": str(WORKER_TIMEOUT),
            "TASKLIB_BASE_RETRY_DELAY_SECONDS": "0.1",
        }
        with open(log, "wb") as stream:
            service = subprocess.Popen(
                [sys.executable, "-m", "tasklib", *words], cwd=ROOT, env=environment, stdout=stream, stderr=stream
            )
        self._services.append(service)
        self.history.logs.append(log)
        eventually(lambda: " started, " in log.read_text(), 120)
        return service

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("worker-*.log")))

    def kill(self, service: subprocess.Popen[bytes]) -> None:
        """Kill the supervisor and its workers at once."""
        processes = [psutil.Process(service.pid), *psutil.Process(service.pid).children()]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        service.wait()

    def started(self, task_id: Any) -> int:
        """The process in which a task's body has first started."""
        return eventually(lambda: self.ledger.starts_of(task_id), 120)[0].pid

    def close(self) -> None:
        for service in self._services:
            if service.poll() is None:
                service.send_signal(signal.SIGTERM)
        for service in self._services:
            service.wait(180)


@pytest.fixture
def fleet(engine: Engine, sqlite_url: str, ledger_path: Path, tmp_path: Path, watch: Watch) -> Iterator[Fleet]:
    with fleet_of(engine, sqlite_url, ledger_path, tmp_path, watch) as made:
        yield made


@pytest.fixture(params=list(MODULES))
def servers(request: pytest.FixtureRequest, ledger_path: Path, tmp_path: Path) -> Iterator[Servers]:
    """A cluster for one test, which may kill it."""
    with servers_of(installed(request.param), tmp_path) as made:
        yield made


@pytest.fixture
def own_fleet(servers: Servers, sqlite_url: str, ledger_path: Path, tmp_path: Path, watch: Watch) -> Iterator[Fleet]:
    """Workers of that cluster."""
    with fleet_of(Engine(servers.engine, servers.address), sqlite_url, ledger_path, tmp_path, watch) as made:
        yield made


@contextmanager
def fleet_of(engine: Engine, url: str, ledger_path: Path, folder: Path, watch: Watch) -> Iterator[Fleet]:
    ledger_path.unlink(missing_ok=True)
    with ExitStack() as stack:
        queue = stack.enter_context(TaskQueue(Config(url, worker_timeout_seconds=WORKER_TIMEOUT)))
        queue.migrate()
        made = Fleet(engine, queue, watch(url, Ledger(ledger_path)), folder)
        stack.callback(made.close)
        yield made


def wait(fleet: Fleet, task_id: object) -> Task:
    """The task when it has ended; with the workers' log if it does not."""
    try:
        return fleet.queue.wait(task_id, timeout=120)  # type: ignore[arg-type]
    except Exception as error:
        raise AssertionError(f"{fleet.queue.get(task_id)}\n{fleet.log()}") from error  # type: ignore[arg-type]


Gone = Callable[[int], bool]


def is_gone(pid: int) -> bool:
    """Whether nothing runs there; one that nobody has collected yet runs nothing."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
