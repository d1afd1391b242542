"""What may start over all workers: limits shows them; rate-limit, concurrency-limit and key-limit set them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exit_codes import CommandFailed, Exit

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

GROUP = "Queue"
DEFAULT = "default"

app = typer.Typer()

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Tasks of this name; all together without it.", show_default=False),
]
Count = Annotated[
    int | None,
    typer.Argument(metavar="N", min=0, help="Tasks at once; 0 is unlimited.", show_default=False),
]


@command(app, "limits", group=GROUP, examples="tasklib limits\ntasklib limits --json")
def limits(cli: Cli) -> None:
    """Show every limit: of rate, of tasks at once, and of concurrency keys.

    They apply across all workers. Set them with rate-limit, concurrency-limit and key-limit.
    """
    _say_limits(cli)


@command(
    app,
    "rate-limit",
    group=GROUP,
    examples="""
    tasklib rate-limit
    tasklib rate-limit 10 send_email
    tasklib rate-limit 0.5
    tasklib rate-limit 0 send_email
    """,
)
def rate_limit(
    cli: Cli,
    rate: Annotated[
        float | None,
        typer.Argument(metavar="N", min=0, help="Tasks per second; 0 removes the limit.", show_default=False),
    ] = None,
    name: Name = None,
) -> None:
    """Show the limits, or let at most N tasks start per second.

    It applies across all workers, to tasks of one name or to all together. Every attempt counts.
    """
    if rate is not None:
        _changing(cli).set_rate_limit(rate, name)
    _say_limits(cli)


@command(
    app,
    "concurrency-limit",
    group=GROUP,
    examples="""
    tasklib concurrency-limit
    tasklib concurrency-limit 4 send_email
    tasklib concurrency-limit 0 send_email
    """,
)
def concurrency_limit(cli: Cli, count: Count = None, name: Name = None) -> None:
    """Show the limits, or let at most N tasks run at once.

    It applies across all workers, to tasks of one name or to all together.
    """
    if count is not None:
        _changing(cli).set_concurrency_limit(count, name)
    _say_limits(cli, "concurrency-limit 4 send_email")


@command(
    app,
    "key-limit",
    group=GROUP,
    examples="""
    tasklib key-limit
    tasklib key-limit 3
    tasklib key-limit 10 tenant-7
    tasklib key-limit 3 --name send_email
    tasklib key-limit default tenant-7
    """,
)
def key_limit(
    cli: Cli,
    count: Annotated[
        str | None,
        typer.Argument(
            metavar="N", help="Tasks at once; 0 is unlimited, `default` removes the limit.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY", help="This key; without it, every key that has no limit of its own.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only tasks of this name, counted separately.")
    ] = None,
) -> None:
    """Show the limits, or let at most N tasks of a concurrency key run at once.

    It applies across all workers. The default is one.
    """
    if count is not None:
        _changing(cli).set_key_limit(_count(count), key, name)
    _say_limits(cli, "key-limit 3 tenant-7")


def _changing(cli: Cli) -> TaskQueue:
    """The queue, whose database is made if it is missing: there will be something to keep in it."""
    cli.creates = True
    return cli.service.queue


def _count(text: str) -> int | None:
    if text == DEFAULT:
        return None
    if text.isdecimal():
        return int(text)
    raise CommandFailed(f"N is a number of tasks, 0 for any number, or {DEFAULT!r}, got {text!r}", Exit.USAGE)


def _say_limits(cli: Cli, example: str = "rate-limit 10 send_email") -> None:
    limits, key_limits = cli.service.queue.limits(), cli.service.queue.key_limits()

    def say() -> None:
        from tasklib.cli.show.queue import show_key_limits, show_limits

        show_limits(cli.out, limits)
        show_key_limits(cli.out, key_limits)
        if not limits and not key_limits:
            cli.out.line(f"No limits. Set one: tasklib {example}")

    cli.out.answer({"limits": limits, "key_limits": key_limits}, say)
