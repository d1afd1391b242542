"""Tasks by name, or by a pattern of names: `call*`."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasklib.core.queue_info import TaskFilter
    from tasklib.service.pages import Page
    from tasklib.service.service import QueueService


def is_pattern(name: str | None) -> bool:
    """Whether it may stand for several names."""
    return name is not None and any(mark in name for mark in "*?[")


def each_name(service: QueueService, which: TaskFilter) -> list[TaskFilter]:
    """The filter itself, or one for each name that its pattern fits; a task whose name is the pattern comes first."""
    if which.name is None or not is_pattern(which.name):
        return [which]
    known = service.queue.stats().by_name
    if which.name in known:
        return [which]
    return [replace(which, name=name) for name in sorted(known) if fnmatchcase(name, which.name)]


def page_of(
    service: QueueService, which: TaskFilter, limit: int, before: str | None, on_progress: Callable[[float], None]
) -> Page:
    """A page of the tasks of all these names, newest first; `on_progress` gets which part was looked through."""
    from tasklib.service.pages import Page

    names = each_name(service, which)
    pages: list[Page] = []
    for each in names:

        def report(part: float, done: int = len(pages)) -> None:
            on_progress((done + part) / len(names))

        pages.append(service.page(each, limit=limit, before=before, on_progress=report))
    found = sorted((task for page in pages for task in page.tasks), key=lambda task: task.seq, reverse=True)
    more = len(found) > limit or any(page.next for page in pages)
    return Page(tuple(found[:limit]), found[:limit][-1].id if more else None)
