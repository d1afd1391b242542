"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import values

if TYPE_CHECKING:
    from tasklib.core.task import TaskFilter

FILTERS = "Which tasks"


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Lets the shell complete a value to one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        metavar="STATE",
        help="pending, delayed, running, completed, failed, retrying, cancelled or buried; may be repeated.",
        rich_help_panel=FILTERS,
        show_default=False,
        autocompletion=one_of(
            *("pending", "delayed", "running", "completed", "failed", "retrying", "cancelled", "buried")
        ),
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", "-n", metavar="NAME", help="Tasks of this name, or of names like 'call*'.", rich_help_panel=FILTERS
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        "-t",
        metavar="KEY=VALUE",
        help="Tasks with this tag; may be repeated.",
        rich_help_panel=FILTERS,
        show_default=False,
    ),
]
Search = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="In payload, tags or error.", rich_help_panel=FILTERS),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the tasks it would change.")]
LogLevel = Annotated[
    str,
    typer.Option(
        metavar="LEVEL",
        help="debug, info, warning or error.",
        autocompletion=one_of("debug", "info", "warning", "error"),
    ),
]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tasks to act on: by id, or all that fit; and how careful to be."""

    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", show_default=False, help="Ids of the tasks, full or shortened.")
    ] = None
    all_matching: Annotated[
        bool,
        typer.Option("--all-matching", help="Every task that matches the options below.", rich_help_panel=FILTERS),
    ] = False
    state: States = None
    name: Name = None
    tag: Tags = None
    search: Search = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: DryRun = False

    @property
    def filter(self) -> TaskFilter:
        """The tasks that the options fit."""
        return task_filter(self.state, self.name, self.tag, self.search)


def task_filter(state: list[str] | None, name: str | None, tag: list[str] | None, search: str | None) -> TaskFilter:
    """The filter that the shared options mean."""
    from tasklib.queue import task_filter

    return task_filter(state, name, {"tags": values.pairs(tag or (), "tag") or None, "search": search})
