"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli import parse

if TYPE_CHECKING:
    from tasklib.task import TaskFilter

FILTERS = "Which tasks"

States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        metavar="STATE",
        help="pending, delayed, running, completed, failed, retrying, cancelled or buried; may be repeated.",
        rich_help_panel=FILTERS,
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", "-n", metavar="NAME", help="Tasks of this name.", rich_help_panel=FILTERS),
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
AllMatching = Annotated[
    bool,
    typer.Option("--all-matching", help="Every task that fits the options below.", rich_help_panel=FILTERS),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many tasks it would be.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", show_default=False, help="Tasks by their ids.")]


def task_filter(state: list[str] | None, name: str | None, tag: list[str] | None, search: str | None) -> TaskFilter:
    """The filter that the shared options mean."""
    from tasklib.queue import task_filter

    return task_filter(state, name, {"tags": parse.pairs(tag or (), "tag") or None, "search": search})
