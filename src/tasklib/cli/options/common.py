"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tasklib.cli.options import values
from tasklib.cli.options.declare import argument, option

if TYPE_CHECKING:
    from tasklib.core.queue_info import TaskFilter

FILTERS = "Which tasks"
STATES = ("pending", "delayed", "waiting", "running", "completed", "failed", "retrying", "cancelled", "buried")
LEVELS = ("debug", "info", "warning", "error")

States = Annotated[
    list[str] | None,
    option(
        "STATE",
        f"{', '.join(STATES[:-1])} or {STATES[-1]}; may be repeated.",
        *("--state", "-s"),
        panel=FILTERS,
        words=STATES,
    ),
]
Name = Annotated[
    str | None, option("NAME", "Tasks of this name, or of names like 'call*'.", "--name", "-n", panel=FILTERS)
]
Tags = Annotated[
    list[str] | None, option("KEY=VALUE", "Tasks with this tag; may be repeated.", "--tag", "-t", panel=FILTERS)
]
Search = Annotated[
    str | None,
    option(
        "TEXT",
        "In payload, tags or error; or terms: args.PATH:VALUE, tag.KEY:VALUE, worker:W, release:R, duration:>5s, "
        "wait:<1s.",
        "--search",
        panel=FILTERS,
    ),
]
DryRun = Annotated[bool, option(None, "Only count the tasks it would change.", "--dry-run")]
LogLevel = Annotated[str, option("LEVEL", "debug, info, warning or error.", words=LEVELS, show_default=True)]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tasks to act on: by id, or all that fit; and how careful to be."""

    ids: Annotated[list[str] | None, argument("ID", "Ids of the tasks, full or shortened.")] = None
    all_matching: Annotated[
        bool, option(None, "Every task that matches the options below.", "--all-matching", panel=FILTERS)
    ] = False
    state: States = None
    name: Name = None
    tag: Tags = None
    search: Search = None
    yes: Annotated[bool, option(None, "Do not ask.", "--yes", "-y")] = False
    dry_run: DryRun = False

    @property
    def filter(self) -> TaskFilter:
        """The tasks that the options fit."""
        return task_filter(self.state, self.name, self.tag, self.search)


def task_filter(state: list[str] | None, name: str | None, tag: list[str] | None, search: str | None) -> TaskFilter:
    """The filter that the shared options mean."""
    from tasklib.queue import task_filter

    return task_filter(state, name, {"tags": values.pairs(tag or (), "tag") or None, "search": search})
