"""What `import tasklib` offers, what it costs, and what an installation brings along."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tasklib

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = """
Abort AsyncTaskContext Attempt Backoff ClaimLost Config ConfigurationError DatabaseBusy DatabaseFull DatabaseReplaced
DatabaseUnavailable Explanation Flow ForeignTable Group InvalidArguments InvalidPayload InvalidTaskId
InvalidTransition LogLine ManualClock Middleware Node NonDeterminism NotInitialized PermissionDenied Plan QueueStats
Reason Resource ResultError Retry Schedule SchemaError SchemaMismatch SchemaMissing SchemaOutdated SchemaTooNew Snooze
StepFailed StepKeyError StorageError Task TaskContext TaskDefinitionError TaskFailed TaskId TaskIds TaskLibError
TaskNotFound TaskNotRegistered TaskQueue TaskState TaskTimeout TaskWorker TransactionSubmitter UniqueConflict
WaitTimeout WorkerInfo WorkerLost WorkerState WorkerStuck __version__ current_context default_queue
get_registered_tasks get_task has_error has_result init injected is_completed is_failed is_pending is_running
is_terminal list_tasks submit_task task tq
"""
"""Adding a name is a decision for years; it is written here on purpose."""

# What we ask for, and what that asks for in turn.
DECLARED = {"cronsim", "pydantic", "rich", "typer", "tzdata", "uuid-utils"}
BROUGHT_ALONG = {
    "typing-extensions",
    *("annotated-types", "pydantic-core", "typing-inspection"),
    *("annotated-doc", "markdown-it-py", "mdurl", "pygments", "shellingham"),
}


A_SERVER = "postgresql://nobody:secret@localhost/app"
ON_SQLITE = """
import sys, tasklib
queue = tasklib.TaskQueue("sqlite:///:memory:")
task_id = queue.task(name="answer")(lambda: 42).submit()
queue.process_batch()
print(task_id.wait(), "psycopg" in sys.modules)
"""


def test_the_extras_are_these() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert " ".join(sorted(extras)) == "all dask django fast mcp metrics opentelemetry postgres pydantic-ai ray serve"
    (everything,) = extras["all"]
    assert set(re.findall(r"[\w-]+", everything.partition("[")[2])) == set(extras) - {"all"}


def test_the_public_names_are_these() -> None:
    assert sorted(tasklib.__all__) == sorted(PUBLIC.split())


@pytest.mark.parametrize("name", [name for name in PUBLIC.split() if name != "__version__"])
def test_every_public_name_says_what_it_is(name: str) -> None:
    documentation = getattr(tasklib, name).__doc__

    assert documentation
    assert documentation.strip()


@pytest.mark.parametrize("name", sorted(name for name in dir(tasklib.TaskQueue) if not name.startswith("_")))
def test_every_method_of_a_queue_says_what_it_does(name: str) -> None:
    assert getattr(tasklib.TaskQueue, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'submit_tsk'"):
        tasklib.submit_tsk  # noqa: B018


def test_importing_loads_no_driver_and_no_validator() -> None:
    loaded = _run(sys.executable, "-c", "import sys, tasklib; print(*sys.modules)").split()

    heavy = {"asyncio", "psycopg", "psycopg_pool", "pydantic", "pydantic_core", "rich", "sqlite3", "typer"}
    assert not heavy & set(loaded)


def test_an_installation_brings_few_packages_and_works(tmp_path: Path) -> None:
    """In an environment with what the wheel asks for and nothing else; `make package` lets pip and uv make it."""
    environment = tmp_path / "environment"
    python = _installed(environment)
    listed = _run(python, "-I", "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))")
    loaded = _run(python, "-I", "-c", "import sys, tasklib; print(tasklib.__file__, *sys.modules)").split()
    ran = _run(python, "-I", "-W", "error", "-c", ON_SQLITE)
    version = _run(python, "-I", "-m", "tasklib", "--version")
    refused = subprocess.run(
        [python, "-I", "-m", "tasklib", "stats", "--dsn", A_SERVER], capture_output=True, text=True
    )

    installed = {_normal(name) for name in listed.split()} - {"tasklib-queue"}
    assert installed <= DECLARED | BROUGHT_ALONG
    assert installed >= DECLARED
    assert loaded[0].startswith(str(environment))
    assert not {"psycopg", "pydantic"} & set(loaded)
    assert ran.split() == ["42", "False"]
    assert "psycopg not installed" in version
    assert (refused.returncode, "needs the PostgreSQL driver psycopg" in refused.stderr) == (2, True)
    assert "pip install 'tasklib-queue[postgres]'" in refused.stderr
    assert "secret" not in refused.stderr


def _installed(environment: Path) -> str:
    """The interpreter of a new environment with our wheel and what it asks for, as links to what is installed here."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(environment), folder=ROOT)
    (wheel,) = environment.glob("*.whl")
    venv.create(environment, with_pip=False)
    python = str(environment / "bin" / "python")
    packages = Path(_run(python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    shutil.unpack_archive(wheel, packages, format="zip")
    (ours,) = metadata.distributions(path=[str(packages)])
    for each in _asked_for(ours):
        for name in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / name).symlink_to(each.locate_file(name))
    return python


def _asked_for(distribution: metadata.Distribution) -> set[metadata.Distribution]:
    """What pip would install for it, in the versions that are here."""
    found = dict[str, metadata.Distribution]()
    waiting = [(distribution, frozenset[str]())]
    while waiting:
        asking, chosen = waiting.pop()
        for line in map(Requirement, asking.requires or ()):
            if line.marker and not any(line.marker.evaluate({"extra": extra}) for extra in chosen or {""}):
                continue
            wanted = metadata.distribution(line.name)
            assert wanted.version in line.specifier, f"{line} is not installed here"
            if _normal(line.name) not in found:
                found[_normal(line.name)] = wanted
                waiting.append((wanted, frozenset(line.extras)))
    return set(found.values())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*command: str, folder: Path = ROOT.parent) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
