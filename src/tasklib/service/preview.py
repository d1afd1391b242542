"""Tasks in lists: shortened, so that a page stays small whatever payloads, results and errors hold.  Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tasklib.core.codec import dumps_to_show, loads_start
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import Task
from tasklib.core.texts.error_text import bounded, summary
from tasklib.core.texts.search_text import path_of, value_at

CHARACTERS: Final = 2000
"""How much a list shows of a payload, a result, tags or an error."""
_DOCUMENTS: Final = ("args", "kwargs", "result", "tags", "headers")
_TEXTS: Final = ("error", "progress_message", "unique_key", "concurrency_key", "worker_id")
_BESIDE_THE_PAYLOAD: Final = ("result", "tags", "headers", "progress_message", "unique_key", "concurrency_key")


def without_unknown_secrets(task: Task) -> Task:
    """The task without the fields that may repeat a secret of its payload, if the payload was cut.

    Of an error its kind is left.  If the headers were cut, which say what is secret, the payload is left out too.
    """
    if "kwargs" not in task.truncated and "headers" not in task.truncated:
        return task
    hidden: dict[str, Any] = {
        name: {} if name in ("tags", "headers") else None for name in _BESIDE_THE_PAYLOAD if getattr(task, name)
    }
    if "headers" in task.truncated:
        hidden["kwargs"] = None
    changes: dict[str, Any] = {**hidden, "history": (), "log": ()}
    if task.error is not None:
        changes["error"] = summary(task.error).partition(":")[0]
    return replace(task, **changes, truncated=_named(task, [*hidden, *(["error"] if task.error else [])]))


def matches_as_shown(task: Task, shown: Task, which: TaskFilter) -> bool:
    """Whether a task that matches does so by what is shown of it, so that a search cannot reveal a secret."""
    if which.unique_key not in (None, shown.unique_key):
        return False
    if which.concurrency_key not in (None, shown.concurrency_key):
        return False
    if shown.tags != task.tags and any(shown.tags.get(key) != value for key, value in (which.tags or {}).items()):
        return False
    if shown.kwargs != task.kwargs and any(
        value_at(shown.kwargs, path_of(path)) != value for path, value in (which.arguments or {}).items()
    ):
        return False
    if which.search is None or (shown.kwargs, shown.tags, shown.error) == (task.kwargs, task.tags, task.error):
        return True
    wanted = which.search.lower()
    texts = (*_spellings(shown.kwargs), *_spellings(shown.tags), shown.error or "")
    return any(wanted in text.lower() for text in texts)


def preview(task: Task) -> Task:
    """The task with long fields shortened; `truncated` names them."""
    changes: dict[str, Any] = {}
    for name in _DOCUMENTS:
        value = getattr(task, name)
        if value:
            text = dumps_to_show(value)
            if len(text) > CHARACTERS:
                changes[name] = _start(text)
    for name in _TEXTS:
        text = getattr(task, name)
        if text is not None and len(text) > CHARACTERS:
            changes[name] = bounded(text, CHARACTERS)  # an error says at its end what went wrong
    return replace(task, **changes, truncated=_named(task, changes)) if changes else task


def _spellings(value: Any) -> Iterator[str]:
    """The value as either database spells JSON."""
    yield json.dumps(value, ensure_ascii=False)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _start(text: str) -> Any:
    try:
        return loads_start(text[:CHARACTERS])
    except ValueError:
        return None  # one number, longer than that


def _named(task: Task, more: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*task.truncated, *more)))
