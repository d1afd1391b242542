"""The examples in docstrings run and print what they say, and everything public has one."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tasklib.errors import TaskLibError
from tasklib.queue import default
from tools.docs_examples import BEFORE, documented

PUBLIC = dict(documented())
TWIN = re.compile(r"^(The awaiting form of|As) `")
"""The first line of a method whose example is that of another."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def text_of(value: Any) -> str:
    return inspect.getdoc(value) or ""


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if ">>>" in text_of(value)])
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a namespace and an empty folder of its own, with a new queue."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(default, "_queue", None, raising=False)
    namespace: dict[str, Any] = {"__name__": "examples"}
    exec(BEFORE, namespace)
    test = doctest.DocTestParser().get_doctest(text_of(PUBLIC[name]), namespace, name, None, None)
    printed: list[str] = []

    failed = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=printed.append, clear_globs=False)

    namespace["queue"].close()
    assert failed.failed == 0, "".join(printed)


def test_everything_public_has_an_example() -> None:
    """Errors that need a broken database say what they mean, and their properties are plain."""
    without = [
        name
        for name, value in PUBLIC.items()
        if ">>>" not in text_of(value)
        and not TWIN.match(text_of(value))
        and not isinstance(value, property)
        and not (inspect.isclass(value) and issubclass(value, TaskLibError))
    ]
    assert without == []
