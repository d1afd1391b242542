"""The package's public names: loaded when first used, and the same objects wherever they come from."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tasklib


@pytest.mark.parametrize("name", tasklib.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(tasklib, name) is not None
    assert name in dir(tasklib)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tasklib' has no attribute 'Tusk'"):
        _ = tasklib.Tusk  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["tasklib.core.task", "tasklib.queue", "tasklib.queue.default", "tasklib.worker"])
def test_task_is_the_decorator_whatever_was_imported_first(first: str) -> None:
    program = f"import {first}, tasklib\n@tasklib.task\ndef f(): ...\nprint(tasklib.get_registered_tasks().keys())"
    assert run(program) == "dict_keys(['f'])"


def test_import_loads_neither_the_worker_nor_a_database() -> None:
    program = "import tasklib, sys; print({'asyncio', 'pydantic', 'psycopg', 'sqlite3'} & set(sys.modules))"
    assert run(program) == "set()"


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
