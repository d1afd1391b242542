"""Integrations import nothing of their library until they are used, and then say what to install."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib.metadata import metadata

import pytest

from tasklib import contrib
from tasklib.contrib import sentry

LIBRARIES = [
    "alembic",
    "dask",
    "distributed",
    "django",
    "django_tasks",
    "flask",
    "litestar",
    "loguru",
    "opentelemetry",
    "pydantic_ai",
    "ray",
    "sentry_sdk",
    "sqlalchemy",
    "starlette",
    "structlog",
]
INTEGRATIONS = sorted(module.name for module in pkgutil.iter_modules(contrib.__path__))
WITHOUT_LIBRARIES = f"""
import importlib, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LIBRARIES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
modules = {{name: importlib.import_module(f"tasklib.contrib.{{name}}") for name in {INTEGRATIONS!r}}}
"""
USED = {
    "django": ("modules['django'].TasklibBackend", "tasklib-queue[django]"),
    "litestar": ("modules['litestar'].mount('/queue', None)", "litestar"),
    "loguru": ("modules['loguru'].bind(queue)", "loguru"),
    "opentelemetry": ("modules['opentelemetry'].TasklibInstrumentor", "tasklib-queue[opentelemetry]"),
    "pydantic_ai": ("modules['pydantic_ai'].TasklibDurability", "tasklib-queue[pydantic-ai]"),
    "sentry": ("modules['sentry'].TasklibIntegration", "sentry-sdk"),
    "sqlalchemy": ("modules['sqlalchemy'].tables()", "sqlalchemy"),
    "structlog": ("modules['structlog'].bind(queue)", "structlog"),
}
"""How each is used that has no other guard: Alembic and Flask hand us what is theirs, workers look for Dask and Ray."""


def test_every_one_can_be_imported_and_lists_its_names_where_no_library_is_installed() -> None:
    assert set(INTEGRATIONS) == {*USED, "alembic", "dask", "flask", "late", "ray"}
    hidden = "{name: set(getattr(module, '__all__', ())) - set(dir(module)) for name, module in modules.items()}"
    said = run(f"{WITHOUT_LIBRARIES}\nprint(json.dumps({{name: sorted(each) for name, each in {hidden}.items()}}))")
    # The builder of the documentation finds what a module lists.
    assert said == {name: [] for name in INTEGRATIONS}


def test_a_name_that_an_integration_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tasklib\.contrib\.sentry' has no attribute 'Tusk'"):
        _ = sentry.Tusk  # type: ignore[attr-defined]


def test_using_one_says_what_to_install() -> None:
    uses = {name: use for name, (use, _) in USED.items()}
    program = f"""{WITHOUT_LIBRARIES}
import tasklib
queue, said = tasklib.TaskQueue("sqlite://"), {{}}
for name, use in {uses!r}.items():
    try:
        eval(use)
    except tasklib.ConfigurationError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
    said = run(program)

    for name, (_, install) in USED.items():
        assert said.get(name, "").endswith(f" is needed, and not installed: pip install '{install}'"), (name, said)


def test_the_extras_that_are_named_exist() -> None:
    named = {install.partition("[")[2].rstrip("]") for _, install in USED.values()} - {""}

    assert named <= set(metadata("tasklib-queue").get_all("Provides-Extra") or ())


def run(program: str) -> object:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
