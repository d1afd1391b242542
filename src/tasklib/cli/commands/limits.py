"""What may start over all workers: limits shows them; rate-limit, concurrency-limit and key-limit set them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.queue import show_key_limits, show_limits

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

DEFAULT = "default"

app = Commands("Queue")

Name = Annotated[str | None, argument("NAME", "Tasks of this name; all together without it.")]


@app.add()
def limits(cli: Cli) -> None:
    """Show every limit: of rate, of tasks at once, and of concurrency keys.

    They apply across all workers. Set them with rate-limit, concurrency-limit and key-limit.

    Examples:
        tasklib limits
        tasklib limits --json
    """
    _say_limits(cli)


@app.add()
def rate_limit(
    cli: Cli,
    rate: Annotated[float | None, argument("N", "Tasks per second; 0 removes the limit.", min=0)] = None,
    name: Name = None,
) -> None:
    """Show the limits, or let at most N tasks start per second.

    It applies across all workers, to tasks of one name or to all together. Every attempt counts.

    Examples:
        tasklib rate-limit
        tasklib rate-limit 10 send_email
        tasklib rate-limit 0.5
        tasklib rate-limit 0 send_email
    """
    if rate is not None:
        _changing(cli).set_rate_limit(rate, name)
    _say_limits(cli)


@app.add()
def concurrency_limit(
    cli: Cli,
    count: Annotated[int | None, argument("N", "Tasks at once; 0 is unlimited.", min=0)] = None,
    name: Name = None,
) -> None:
    """Show the limits, or let at most N tasks run at once.

    It applies across all workers, to tasks of one name or to all together.

    Examples:
        tasklib concurrency-limit
        tasklib concurrency-limit 4 send_email
        tasklib concurrency-limit 0 send_email
    """
    if count is not None:
        _changing(cli).set_concurrency_limit(count, name)
    _say_limits(cli, "concurrency-limit 4 send_email")


@app.add()
def key_limit(
    cli: Cli,
    count: Annotated[str | None, argument("N", "Tasks at once; 0 is unlimited, `default` removes the limit.")] = None,
    key: Annotated[str | None, argument("KEY", "This key; without it, every key that has no limit of its own.")] = None,
    name: Annotated[str | None, option("NAME", "Only tasks of this name, counted separately.")] = None,
) -> None:
    """Show the limits, or let at most N tasks of a concurrency key run at once.

    It applies across all workers. The default is one.

    Examples:
        tasklib key-limit
        tasklib key-limit 3
        tasklib key-limit 10 tenant-7
        tasklib key-limit 3 --name send_email
        tasklib key-limit default tenant-7
    """
    if count is not None:
        if count != DEFAULT and not count.isdecimal():
            detail = f"N is a number of tasks, 0 for any number, or {DEFAULT!r}, got {count!r}"
            raise CommandFailed(detail, Exit.USAGE)
        _changing(cli).set_key_limit(None if count == DEFAULT else int(count), key, name)
    _say_limits(cli, "key-limit 3 tenant-7")


def _changing(cli: Cli) -> TaskQueue:
    """The queue, whose database is created if it is missing, to store the limit in."""
    cli.creates = True
    return cli.service.queue


def _say_limits(cli: Cli, example: str = "rate-limit 10 send_email") -> None:
    limits, key_limits = cli.service.queue.limits(), cli.service.queue.key_limits()

    def say() -> None:
        show_limits(cli.out, limits)
        show_key_limits(cli.out, key_limits)
        if not limits and not key_limits:
            cli.out.line(f"No limits. Set one: tasklib {example}")

    cli.out.answer({"limits": limits, "key_limits": key_limits}, say)
