"""Limits over all workers: `limits` shows them; rate-limit, concurrency-limit, key-limit and budget set them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.queue import show_budgets, show_key_limits, show_limits

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

DEFAULT = "default"

app = Commands("Queue")

Name = Annotated[str | None, argument("NAME", "Tasks of this name; all together without it.")]


@app.add()
def limits(cli: Cli) -> None:
    """Show every limit: of rate, of tasks at once, of concurrency keys, and budgets of workflows.

    They apply across all workers. Set them with rate-limit, concurrency-limit, key-limit and budget.

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


@app.add()
def budget(
    cli: Cli,
    tokens: Annotated[float | None, argument("N", "Tokens per minute; 0 removes the budget.", min=0)] = None,
    name: Annotated[str | None, argument("NAME", "The budget's name.")] = None,
    burst: Annotated[float | None, option("N", "Tokens kept at most; a minute's worth without it.")] = None,
) -> None:
    """Show the limits, or let workflows spend N tokens of a budget per minute.

    It applies across all workers. A new budget is full; another rate keeps what is left.

    Examples:
        tasklib budget
        tasklib budget 90000 llm-tokens
        tasklib budget 300 calls --burst 20
        tasklib budget 0 calls
    """
    if tokens is not None:
        if name is None:
            raise CommandFailed("which budget? Give its name: tasklib budget N NAME", Exit.USAGE)
        _changing(cli).set_budget(name, per_minute=tokens, burst=burst)
    _say_limits(cli, "budget 90000 llm-tokens")


def _changing(cli: Cli) -> TaskQueue:
    """The queue, whose database is created if it is missing, to store the limit in."""
    cli.creates = True
    return cli.service.queue


def _say_limits(cli: Cli, example: str = "rate-limit 10 send_email") -> None:
    queue = cli.service.queue
    limits, key_limits, budgets = queue.limits(), queue.key_limits(), queue.budgets()

    def say() -> None:
        show_limits(cli.out, limits)
        show_key_limits(cli.out, key_limits)
        show_budgets(cli.out, budgets)
        if not limits and not key_limits and not budgets:
            cli.out.line(f"No limits. Set one: tasklib {example}")

    cli.out.answer({"limits": limits, "key_limits": key_limits, "budgets": budgets}, say)
